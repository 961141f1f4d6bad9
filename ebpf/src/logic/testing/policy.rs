//! Verdict rows as the compiler writes them: each with a head that knows of it.

use super::FakeTables;
use crate::layout::policy::{CLASS_BITS, LOOSE, V_ALLOW, narrower};
use crate::layout::{Asked, VerdictKey, VerdictRow};

/// Writes a row. A head that is made for it says what anybody's says.
pub(crate) fn verdict(tables: &mut FakeTables, bits: u32, asked: Asked, flags: u32, cookie: u32) {
    let head = head(tables, &asked);
    if bits == CLASS_BITS {
        head.flags = head.flags & !V_ALLOW | flags;
        head.cookie = cookie;
        return;
    }
    head.flags |= narrower(bits);
    let row = VerdictRow { flags, cookie, ..VerdictRow::default() };
    tables.verdicts.insert(VerdictKey::ports(&asked, bits), row);
}

/// Allows fragments without a first one.
pub(crate) fn allow_loose(tables: &mut FakeTables, of: Asked, proto: u8, cookie: u32) {
    let at = LOOSE.iter().position(|with_ports| *with_ports == proto).unwrap();
    head(tables, &of).loose[at] = cookie;
}

fn head<'a>(tables: &'a mut FakeTables, asked: &Asked) -> &'a mut VerdictRow {
    let anybody = tables.verdicts.get(&VerdictKey::head(asked.set, 0)).copied().unwrap_or_default();
    let new = VerdictRow { flags: anybody.flags & V_ALLOW, cookie: anybody.cookie, ..VerdictRow::default() };
    tables.verdicts.entry(VerdictKey::head(asked.set, asked.class)).or_insert(new)
}
