//! CHECK: what the agent knows of an attachment, compared with what is in the kernel.

use osmia_cni::protocol::{Assignment, AttachmentKey, Failure, host_link_name};

use super::{Attachments, failure};

impl Attachments {
    /// What the attachment is. The plugin compares the pod's side itself.
    ///
    /// # Errors
    /// There is none, or rows, programs or the link are not as they ought to be.
    pub async fn check(&self, key: &AttachmentKey) -> Result<Assignment, Failure> {
        let host_link = host_link_name(key);
        let _turn = self.locks.lock(&host_link).await;
        let record = self.state().records.get(&host_link).cloned();
        let Some(record) = record else {
            return Err(failure::differs(format!("the agent has no attachment {key}")));
        };
        let Some(ifindex) = record.ifindex() else {
            return Err(failure::differs(format!("the ADD of {key} is not complete")));
        };
        if self.link_of(&host_link)? != Some(ifindex) {
            return Err(failure::differs(format!("{key}: host link {host_link} (ifindex {ifindex}) is gone")));
        }
        match self.outside().endpoints.check(record.slot, &record.endpoint(ifindex)) {
            Ok(()) => Ok(record.assignment()),
            Err(error) => Err(failure::differs(format!("{key}: {error:#}"))),
        }
    }
}
