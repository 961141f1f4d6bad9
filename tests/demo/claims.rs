//! The list of claimed rows: a name a line, `#` starts a comment.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use osmia_lab::Encap;

use crate::rows;

/// Claimed rows.
#[derive(Debug)]
pub(crate) struct Claims(BTreeSet<String>);

impl Claims {
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    fn parse(text: &str) -> Result<Self> {
        let known: BTreeSet<_> = Encap::ALL.iter().flat_map(|e| rows::ids(*e)).collect();
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
        let claimed: BTreeSet<_> = lines.filter(|line| !line.is_empty()).map(str::to_owned).collect();
        // A claim that decides nothing is a mistake that would stay unseen.
        if let Some(unknown) = claimed.difference(&known).next() {
            bail!("{unknown} is no row; `demo --list` prints them");
        }
        Ok(Self(claimed))
    }

    pub(crate) fn has(&self, id: &str) -> bool {
        self.0.contains(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_no_claims_and_unknown_rows_are_refused() {
        let claims = Claims::parse("# none yet\n\nvxlan/kill # good\n").unwrap();
        assert!(claims.has("vxlan/kill") && !claims.has("native/kill"));
        assert!(Claims::parse("vxlan/kil").is_err());
    }
}
