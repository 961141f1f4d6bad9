//! A private apt: the machine's mirror and keys, own sources and own state.
//!
//! Invariant: neither the machine's package lists nor its installed packages are touched. No mirror is named here; it is read from
//! the machine's own configuration.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::run;

/// A kernel series and where Debian keeps it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Series {
    /// The start of the kernel's release, and the name under which the tests look for it.
    pub(crate) name: &'static str,
    /// Debian suite that carries it.
    pub(crate) suite: &'static str,
    /// Whether the suite's security archive is asked too.
    pub(crate) security: bool,
}

/// apt-get and apt-cache over a state folder of their own.
pub(crate) struct Apt {
    options: Vec<String>,
}

/// The machine's archive and security archive.
struct Mirrors {
    main: String,
    security: String,
}

impl Apt {
    /// Writes the sources for `wanted` into `state` and reads the package lists.
    pub(crate) fn new(state: &Path, wanted: &[Series]) -> Result<Self> {
        let mirrors = Mirrors::of_this_machine()?;
        for part in ["lists/partial", "archives/partial"] {
            fs::create_dir_all(state.join(part)).with_context(|| format!("create {}", state.join(part).display()))?;
        }
        let mut sources = Vec::new();
        for series in wanted {
            sources.push(format!("deb {} {} main", mirrors.main, series.suite));
            if series.security {
                sources.push(format!("deb {} {}-security main", mirrors.security, series.suite));
            }
        }
        sources.sort();
        sources.dedup();
        let list = state.join("sources.list");
        fs::write(&list, sources.join("\n") + "\n").with_context(|| format!("write {}", list.display()))?;

        let options = [
            ("Dir::Etc::sourcelist", list.display().to_string()),
            ("Dir::Etc::sourceparts", "-".into()),
            ("Dir::State::lists", state.join("lists").display().to_string()),
            ("Dir::Cache", state.display().to_string()),
            ("Acquire::Languages", "none".into()),
            ("Acquire::Retries", "3".into()),
            // Downloads into folders that the sandbox user of a root apt cannot write would only print a warning each.
            ("APT::Sandbox::User", "root".into()),
        ];
        let options =
            options.into_iter().flat_map(|(name, value)| ["-o".to_owned(), format!("{name}={value}")]).collect();
        let apt = Self { options };
        run(Command::new("apt-get").args(&apt.options).args(["-qq", "--error-on=any", "update"]))
            .context("read the package lists")?;
        Ok(apt)
    }

    /// Downloads the newest kernel package of `series` that the mirror still has, into `folder`.
    pub(crate) fn download(&self, series: Series, folder: &Path) -> Result<PathBuf> {
        let prefix = format!("linux-image-{}.", series.name);
        let names = run(Command::new("apt-cache").args(&self.options).args(["pkgnames", &prefix]))?;
        let mut candidates: Vec<&str> = names.lines().filter(|name| name.ends_with("-cloud-amd64-unsigned")).collect();
        candidates.sort_by_key(|name| std::cmp::Reverse(version_key(name)));
        if candidates.is_empty() {
            bail!("the mirror's {} has no package {prefix}*-cloud-amd64-unsigned", series.suite);
        }
        let mut refusals = String::new();
        for name in candidates {
            let before = packages(folder)?;
            match run(Command::new("apt-get").args(&self.options).args(["-qq", "download", name]).current_dir(folder)) {
                Ok(_) => {
                    let new = packages(folder)?.into_iter().find(|path| !before.contains(path));
                    return new
                        .with_context(|| format!("apt-get download {name} left no package in {}", folder.display()));
                }
                // An archive may list a package and not hold it any more: say so, take the one before.
                Err(err) => {
                    eprintln!("kernel {}: {name} is listed and cannot be had, trying the one before", series.name);
                    refusals.push_str(&format!("\n{err:#}"));
                }
            }
        }
        bail!("no kernel {} could be downloaded:{refusals}", series.name);
    }
}

impl Mirrors {
    /// Asks apt which archives the machine uses. Needs package lists that were read once (`apt-get update`), because the origin
    /// of an archive is said there.
    fn of_this_machine() -> Result<Self> {
        let targets = run(Command::new("apt-get").args([
            "indextargets",
            "--format",
            "$(ORIGIN) $(CODENAME) $(REPO_URI)",
            "Created-By: Packages",
        ]))?;
        Self::parse(&targets).context(
            "apt knows no Debian archive with a security archive beside it: the kernels are Debian's, so this needs a Debian \
             machine whose package lists were read (`apt-get update`)",
        )
    }

    fn parse(targets: &str) -> Option<Self> {
        let debian: Vec<(&str, &str)> = targets
            .lines()
            .filter_map(|line| {
                let mut words = line.split_whitespace();
                (words.next()? == "Debian").then_some((words.next()?, words.next()?))
            })
            .collect();
        let (_, main) = debian.iter().find(|(codename, _)| !codename.contains('-'))?;
        let (_, security) = debian.iter().find(|(codename, _)| codename.ends_with("-security"))?;
        Some(Self { main: (*main).to_owned(), security: (*security).to_owned() })
    }
}

/// The numbers in a package's name: `linux-image-6.12.117+deb12-…` is newer than `linux-image-6.12.99+deb12-…`.
fn version_key(name: &str) -> Vec<u64> {
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

fn packages(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()?;
    Ok(paths.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "deb")).collect())
}

#[cfg(test)]
mod tests {
    use super::{Mirrors, version_key};

    #[test]
    fn the_newest_kernel_is_the_one_with_the_larger_number() {
        let old = "linux-image-6.12.99+deb12-cloud-amd64-unsigned";
        let new = "linux-image-6.12.117+deb12-cloud-amd64-unsigned";
        assert!(version_key(new) > version_key(old));
    }

    #[test]
    fn archives_of_others_are_not_taken_for_debians() {
        let targets = "cloud-sdk cloud-sdk http://other.test/apt\nDebian bookworm http://a.test/debian/\n\
                       Debian bookworm-updates http://a.test/debian/\nDebian bookworm-security http://a.test/security/\n";
        let mirrors = Mirrors::parse(targets).expect("both archives are there");
        assert_eq!(
            (mirrors.main.as_str(), mirrors.security.as_str()),
            ("http://a.test/debian/", "http://a.test/security/")
        );
        assert!(Mirrors::parse("Debian bookworm http://a.test/debian/\n").is_none());
    }
}
