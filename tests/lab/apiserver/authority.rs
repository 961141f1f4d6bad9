//! Who vouches for the apiserver and for its users.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

/// A certificate and its key, in PEM.
#[derive(Debug)]
pub struct Identity {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

/// An authority of our own.
pub(super) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    /// A new one.
    pub(super) fn new() -> Result<Self> {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, "osmia-lab");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        Ok(Self(CertifiedIssuer::self_signed(parameters, KeyPair::generate()?)?))
    }

    /// Its certificate, in PEM.
    pub(super) fn certificate(&self) -> String {
        self.0.pem()
    }

    /// For a server on this machine.
    pub(super) fn server(&self) -> Result<Identity> {
        let parameters = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()])?;
        self.issue(parameters, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// For a user of a group.
    pub(super) fn user(&self, name: &str, group: &str) -> Result<Identity> {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.distinguished_name.push(DnType::OrganizationName, group);
        self.issue(parameters, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn issue(&self, mut parameters: CertificateParams, purpose: ExtendedKeyUsagePurpose) -> Result<Identity> {
        parameters.extended_key_usages = vec![purpose];
        parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate()?;
        let certificate = parameters.signed_by(&key, &self.0)?.pem();
        Ok(Identity { certificate, key: key.serialize_pem() })
    }
}

/// Writes a file into `folder`; gives its path.
pub(super) fn write(folder: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let path = folder.join(name);
    std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}
