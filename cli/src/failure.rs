//! Why a command gave nothing, and the exit code that says so.

use std::io;

use osmia_maps::{
    LayoutError, MapError,
    decode::{Cell, GetError, Record},
    layout::LAYOUT,
};

/// Why there is nothing to show.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nothing is pinned, or nothing that this build reads.
    Layout(LayoutError),
    /// The map has no such row.
    NoRow {
        map: &'static str,
        key: String,
    },
    /// Nothing has this name.
    Unknown(String),
    Other(anyhow::Error),
}

impl From<LayoutError> for Failure {
    fn from(error: LayoutError) -> Self {
        match error {
            LayoutError::Map(_) | LayoutError::Io { .. } => Self::Other(error.into()),
            LayoutError::NotBpffs { .. }
            | LayoutError::Nothing { .. }
            | LayoutError::Other { .. }
            | LayoutError::Meta { .. } => Self::Layout(error),
        }
    }
}

impl From<MapError> for Failure {
    fn from(error: MapError) -> Self {
        Self::Other(error.into())
    }
}

impl From<GetError> for Failure {
    fn from(error: GetError) -> Self {
        Self::Other(error.into())
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Other(error)
    }
}

impl Failure {
    /// 3: nothing to read; 4: no such row or name; 1: the rest.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Layout(_) => 3,
            Self::NoRow { .. } | Self::Unknown(_) => 4,
            Self::Other(_) => 1,
        }
    }

    /// A word for programs.
    fn kind(&self) -> &'static str {
        match self {
            Self::Layout(LayoutError::NotBpffs { .. }) => "not_bpffs",
            Self::Layout(LayoutError::Nothing { .. }) => "nothing_pinned",
            Self::Layout(LayoutError::Other { .. }) => "other_layout",
            Self::Layout(_) => "bad_meta",
            Self::NoRow { .. } => "no_row",
            Self::Unknown(_) => "unknown_name",
            Self::Other(_) => "failed",
        }
    }

    /// What a person is told.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Layout(error) => error.to_string(),
            Self::NoRow { map, key } => format!("{map} has no row {key}"),
            Self::Unknown(what) => what.clone(),
            Self::Other(error) => {
                let denied = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>());
                let hint = match denied.into_iter().any(|e| e.kind() == io::ErrorKind::PermissionDenied) {
                    true => " (the pins are read as root)",
                    false => "",
                };
                format!("{error:#}{hint}")
            }
        }
    }

    /// What a program is told: `{"error":{…}}`.
    pub(crate) fn record(&self) -> Record {
        let layouts = match self {
            Self::Layout(LayoutError::Other { found, .. }) => found.iter().map(|l| Cell::Number((*l).into())).collect(),
            _ => Vec::new(),
        };
        let error = Record::new()
            .with("kind", Cell::name(self.kind()))
            .with("message", Cell::Text(self.message().into()))
            .with("layouts_pinned", Cell::List(layouts))
            .with("layout_read", Cell::Number(LAYOUT.into()));
        Record::new().with("error", Cell::Record(error))
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn another_layout_is_said_with_both_numbers() {
        let failure: Failure = LayoutError::Other { root: "/pins".into(), found: vec![7, 9], expected: LAYOUT }.into();
        assert_eq!(failure.exit_code(), 3);
        assert_eq!(
            serde_json::to_string(&failure.record()).unwrap(),
            format!(
                r#"{{"error":{{"kind":"other_layout","message":"/pins holds layout 7, 9, this build reads layout {LAYOUT}: use the build that wrote it","layouts_pinned":[7,9],"layout_read":{LAYOUT}}}}}"#
            )
        );
    }

    #[test]
    fn who_may_not_is_told_who_may() {
        let denied: anyhow::Result<()> = Err(io::Error::from(io::ErrorKind::PermissionDenied)).context("opening");
        assert_eq!(
            Failure::from(denied.unwrap_err()).message(),
            "opening: permission denied (the pins are read as root)"
        );
    }
}
