//! How a document reaches the terminal or a program: tables or JSON, once or again and again.

mod document;
mod page;
mod table;
mod wall;
mod watch;

pub(crate) use document::{Document, List};
pub(crate) use page::Page;
pub(crate) use wall::utc;
pub(crate) use watch::show;
