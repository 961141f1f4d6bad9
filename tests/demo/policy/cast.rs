//! The pods that policies are about.

use anyhow::Result;
use osmia_lab::{Lab, Pod};

use crate::guests::{NEAR, STRANGER};

/// Index of the node of the server and of those near it.
pub(super) const HERE: usize = NEAR;
/// Index of the node of those far from it.
const THERE: usize = STRANGER;
/// Namespace of server and clients, without labels.
pub(super) const SHOP: &str = "shop";
/// A namespace with the label `team: ops`.
const OPS: &str = "ops";
/// Number of the port that the server's Pod calls `web`.
pub(super) const WEB_PORT: u16 = 8081;

/// Who opens what the rows are about.
#[derive(Debug)]
pub(crate) struct Clients {
    /// `app: web`, in the server's namespace.
    pub(super) web: Pod,
    /// `app: other`, in the server's namespace.
    pub(super) other: Pod,
    /// `app: web` in a namespace with a label.
    pub(super) ops: Pod,
}

impl Clients {
    fn all(&self) -> [&Pod; 3] {
        [&self.web, &self.other, &self.ops]
    }
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Cast {
    /// `app: db`, with a named port.
    pub(super) db: Pod,
    /// On the server's node.
    pub(super) near: Clients,
    /// On another.
    pub(super) far: Clients,
}

impl Cast {
    /// Tells of two namespaces and adds the pods.
    pub(super) fn invite(lab: &Lab) -> Result<Self> {
        lab.tell_namespace(SHOP, &[])?;
        lab.tell_namespace(OPS, &[("team", "ops")])?;
        let add = |node: usize, namespace: &str, name: &str, app: &str| {
            let mut object = lab.object(node, namespace, name, &[("app", app)])?;
            if app == "db" {
                object.ports = vec![("web".to_owned(), WEB_PORT)];
            }
            lab.add_told(node, &mut object)
        };
        let clients = |node: usize, place: &str| -> Result<Clients> {
            Ok(Clients {
                web: add(node, SHOP, &format!("web-{place}"), "web")?,
                other: add(node, SHOP, &format!("other-{place}"), "other")?,
                ops: add(node, OPS, &format!("ops-{place}"), "web")?,
            })
        };
        Ok(Self { db: add(HERE, SHOP, "db", "db")?, near: clients(HERE, "near")?, far: clients(THERE, "far")? })
    }

    /// The clients near the server, or far from it.
    pub(super) fn clients(&self, far: bool) -> &Clients {
        if far { &self.far } else { &self.near }
    }

    /// All pods.
    pub(crate) fn present(&self) -> impl Iterator<Item = &Pod> {
        [&self.db].into_iter().chain(self.near.all()).chain(self.far.all())
    }
}
