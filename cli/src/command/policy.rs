//! `osmia policy`: the NetworkPolicies of this node's pods, and what became of them in the maps.

mod classes;
pub(super) mod in_force;
mod list;
mod sets;
mod show;

use std::str::FromStr;

use clap::Subcommand;
use osmia_maps::{MapError, Pins, catalogue::PolicyName, layout::Endpoint, layout::Meta};

use super::{
    endpoint,
    names::{Names, texts},
};
use crate::{
    arguments::Common,
    failure::Failure,
    render::{Document, List, Page},
};

const EXAMPLES: &str = "\
Examples:
  osmia policy list                     every policy that this node knows: in force since when, on which pods
  osmia policy show shop/db             is it in force here; its rules, what each let pass, what it drops
  osmia policy show shop/db --watch     while the packets go on
  osmia policy sets                     rule sets: what pods with the same policies share
  osmia policy sets 4                   its rules and every verdict row, decoded
  osmia policy classes                  peer classes: addresses that all rules in use treat alike
  osmia policy classes 7                what is said of them, and which addresses they are
  osmia drop --policy shop/db           the last packets that it kept out
  osmia explain shop/web-0 10.1.0.6 5432/tcp
                                        one packet: allowed or denied, and why

All of it is of this node alone: a policy that selects no pod here has no rows here.";

#[derive(Subcommand, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) enum Policy {
    /// Every NetworkPolicy that this node knows
    List,
    /// One NetworkPolicy: in force or not, its pods, its rules with their traffic, its drops
    Show {
        /// Its namespace and name
        #[arg(value_name = "NAMESPACE/NAME")]
        policy: Named,
    },
    /// The rule sets, or one with its rules and verdict rows
    Sets {
        /// Number of a rule set, as `endpoint list` shows it
        set: Option<u32>,
    },
    /// The peer classes, or one with its addresses
    Classes {
        /// Number of a class
        class: Option<u32>,
    },
}

/// An object's namespace and name, as a person writes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Named {
    pub(super) namespace: String,
    pub(super) name: String,
}

impl FromStr for Named {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('/') {
            Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
                Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
            }
            _ => Err(format!("`{text}` is no NAMESPACE/NAME")),
        }
    }
}

impl Named {
    pub(super) fn is(&self, policy: &PolicyName) -> bool {
        self.namespace == policy.namespace && self.name == policy.name
    }
}

impl Policy {
    pub(super) fn run(&self, pins: &Pins, common: &Common) -> Result<Document, Failure> {
        let meta = pins.check()?;
        match self {
            Self::List => list::run(pins, common, &meta),
            Self::Show { policy } => show::run(pins, common, policy),
            Self::Sets { set } => sets::run(pins, common, &meta, *set),
            Self::Classes { class } => classes::run(pins, common, &meta, *class),
        }
    }
}

/// The endpoints, and names that were read after them: a name is in the file before its row is in a map.
fn endpoints_and_names(pins: &Pins, common: &Common, meta: &Meta) -> Result<(Vec<(u32, Endpoint)>, Names), MapError> {
    let endpoints = endpoint::present(pins)?;
    let names = Names::of_endpoints(pins, common, meta, &endpoints)?;
    Ok((endpoints, names))
}

/// Says what makes names doubtful.
pub(super) fn say_stale(page: &mut Page<'_>, stale: &[String]) -> std::io::Result<()> {
    stale.iter().try_for_each(|text| page.doubtful(format_args!("? {text}")))
}

/// One table of what the names call by number; `none` is said where it is empty.
fn listed(names: &Names, list: List, none: &'static str) -> Document {
    listed_by(names, list, none, |page, list| page.table(|| list.rows()))
}

/// The same, its table written by `table`.
fn listed_by(
    names: &Names,
    list: List,
    none: &'static str,
    table: impl Fn(&mut Page<'_>, &List) -> std::io::Result<()> + 'static,
) -> Document {
    let stale = names.stale().to_vec();
    let document = Document::new({
        let stale = stale.clone();
        move |document, page| {
            say_stale(page, &stale)?;
            for list in &document.lists {
                if list.len() == 0 {
                    page.line(none)?;
                }
                table(page, list)?;
            }
            Ok(())
        }
    });
    document.with("stale", texts(stale)).list(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_is_given_by_namespace_and_name() {
        let named: Named = "shop/db".parse().unwrap();
        assert!(named.is(&PolicyName { namespace: "shop".into(), name: "db".into(), uid: "u".into() }));
        for wrong in ["db", "/db", "shop/", "a/b/c", ""] {
            assert!(wrong.parse::<Named>().is_err(), "{wrong}");
        }
    }
}
