use std::time::Duration;

use tempfile::TempDir;

use super::*;

fn gone(i: usize) -> Line {
    Line::Gone {
        host_link: format!("osm{i:012}"),
        tombstone: None,
        rest: vec![("10.0.0.1".parse().unwrap(), Duration::from_secs(5))],
    }
}

async fn filled(path: &Path, count: usize) -> Vec<u8> {
    let (journal, _) = Journal::open(path).unwrap();
    for i in 0..count {
        journal.append(&gone(i)).unwrap();
    }
    fs::read(path).unwrap()
}

#[tokio::test]
async fn lines_come_back_in_order() {
    let dir = TempDir::new_in("/dev/shm").unwrap();
    let path = dir.path().join("journal");
    filled(&path, 3).await;
    let (_, replay) = Journal::open(&path).unwrap();
    assert_eq!(replay.lines, [gone(0), gone(1), gone(2)]);
    assert!(replay.damage.is_empty());
}

#[tokio::test]
async fn cut_at_every_byte_it_keeps_the_whole_lines_and_goes_on() {
    let dir = TempDir::new_in("/dev/shm").unwrap();
    let path = dir.path().join("journal");
    let bytes = filled(&path, 3).await;
    let line = bytes.len() / 3;
    for cut in 0..bytes.len() {
        fs::write(&path, &bytes[..cut]).unwrap();
        let (journal, replay) = Journal::open(&path).unwrap();
        let whole = cut / line;
        assert_eq!(replay.lines, (0..whole).map(gone).collect::<Vec<_>>(), "cut at {cut}");
        assert!(replay.damage.is_empty(), "a torn end is normal: {:?}", replay.damage);
        journal.append(&gone(9)).unwrap();
        drop(journal);
        let (_, replay) = Journal::open(&path).unwrap();
        assert_eq!(replay.lines.last(), Some(&gone(9)), "cut at {cut}");
        assert_eq!(replay.lines.len(), whole + 1);
    }
}

#[tokio::test]
async fn a_damaged_line_in_the_middle_loses_itself_alone_and_is_said() {
    let dir = TempDir::new_in("/dev/shm").unwrap();
    let path = dir.path().join("journal");
    let bytes = filled(&path, 3).await;
    let line = bytes.len() / 3;
    for at in line..2 * line {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x20;
        fs::write(&path, &damaged).unwrap();
        let (_, replay) = Journal::open(&path).unwrap();
        if at == 2 * line - 1 {
            // Its end of line is gone, so the next line is lost with it: both are the torn end.
            assert_eq!(replay.lines, [gone(0)]);
            continue;
        }
        assert_eq!(replay.lines, [gone(0), gone(2)], "byte {at}");
        assert!(replay.damage[0].starts_with("line 2: "), "{:?}", replay.damage);
        assert_eq!(fs::read(path.with_extension("damaged")).unwrap(), damaged);
    }
}

#[tokio::test]
async fn a_rewrite_replaces_everything_and_appends_follow_it() {
    let dir = TempDir::new_in("/dev/shm").unwrap();
    let path = dir.path().join("journal");
    let (journal, _) = Journal::open(&path).unwrap();
    for i in 0..100 {
        journal.append(&gone(i)).unwrap();
    }
    journal.rewrite(&[gone(7)]).await.unwrap();
    journal.append(&gone(8)).unwrap();
    let (_, replay) = Journal::open(&path).unwrap();
    assert_eq!(replay.lines, [gone(7), gone(8)]);
}

#[tokio::test]
async fn appends_of_many_are_all_there() {
    let dir = TempDir::new_in("/dev/shm").unwrap();
    let path = dir.path().join("journal");
    let (journal, _) = Journal::open(&path).unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for i in 0..200 {
        let journal = journal.clone();
        tasks.spawn(async move { journal.append(&gone(i)) });
    }
    while let Some(result) = tasks.join_next().await {
        result.unwrap().unwrap();
    }
    let (_, replay) = Journal::open(&path).unwrap();
    assert_eq!(replay.lines.len(), 200);
}

#[tokio::test]
async fn a_full_disk_is_said_and_leaves_nothing_half_done() {
    // A file that cannot grow is what a full disk looks like: RLIMIT_FSIZE is per process, so the writer gets /dev/full instead.
    let dir = TempDir::new_in("/dev/shm").unwrap();
    let path = dir.path().join("journal");
    let device = |path: &str| OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut writer = Writer::new(path.clone(), device("/dev/full"), 0);
    let error = writer.append(b"x\n").unwrap_err();
    let error = writer.error(&error).to_string();
    assert!(error.contains("no space left") && error.contains("journal"), "{error}");
    assert_eq!(writer.length, 0);
    assert!(writer.unsure, "it could not be cut, so nothing is written before it is");
    // Room again: the next append first cuts what was left.
    fs::write(&path, b"half a li").unwrap();
    writer.file = Arc::new(device(&path.to_string_lossy()));
    writer.append(b"whole\n").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"whole\n");
}

/// How far the disk is behind: what was appended and not synced. By the thread's own account, as nothing short of an outage tells.
async fn until(journal: &Journal, what: &str, is: impl Fn(&Writer) -> bool) {
    let end = Instant::now() + 20 * BEHIND;
    while !is(&lock(&journal.writer)) {
        assert!(Instant::now() < end, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn an_append_waits_for_no_disk_and_the_disk_follows() {
    let dir = TempDir::new_in("/dev/shm").unwrap();
    let path = dir.path().join("journal");
    let (journal, _) = Journal::open(&path).unwrap();
    for i in 0..100 {
        journal.append(&gone(i)).unwrap();
        // Whoever is killed now has left it whole: it is in the file.
        assert_eq!(read(&fs::read(&path).unwrap()).0.lines.last(), Some(&gone(i)));
    }
    assert!(lock(&journal.writer).behind, "one sync for all of them, not yet");
    until(&journal, "never synced", |writer| !writer.behind).await;
    // The next one is followed as well.
    journal.append(&gone(100)).unwrap();
    assert!(lock(&journal.writer).behind);
    until(&journal, "synced once only", |writer| !writer.behind).await;
}

#[tokio::test]
async fn a_disk_that_refuses_is_said_and_nothing_more_is_promised_before_it_has_everything() {
    let dir = TempDir::new_in("/dev/shm").unwrap();
    let path = dir.path().join("journal");
    let (journal, _) = Journal::open(&path).unwrap();
    journal.append(&gone(0)).unwrap();
    journal.lose_disk();
    journal.append(&gone(1)).unwrap();
    until(&journal, "the sync went well", |writer| writer.refused.is_some()).await;
    assert!(journal.is_refused());
    let error = journal.append(&gone(2)).unwrap_err().to_string();
    assert!(error.contains("the disk refused what was written before") && error.contains("journal"), "{error}");
    // A rewrite brings what is known to a disk that works.
    journal.rewrite(&[gone(0), gone(1)]).await.unwrap();
    assert!(!journal.is_refused());
    journal.append(&gone(2)).unwrap();
    let (_, replay) = Journal::open(&path).unwrap();
    assert_eq!(replay.lines, [gone(0), gone(1), gone(2)]);
}

#[tokio::test]
async fn a_stop_syncs_at_once_and_says_where_that_fails() {
    let dir = TempDir::new_in("/dev/shm").unwrap();
    let (journal, _) = Journal::open(&dir.path().join("journal")).unwrap();
    journal.append(&gone(0)).unwrap();
    journal.sync().unwrap();
    assert!(!lock(&journal.writer).behind);
    journal.lose_disk();
    journal.append(&gone(1)).unwrap();
    assert!(journal.sync().is_err() && journal.is_refused());
}

/// The kernel says once what it could not write; a later sync of nothing goes well.
#[tokio::test]
async fn lines_that_a_sync_lost_are_said_until_they_are_written_anew() {
    let dir = TempDir::new_in("/dev/shm").unwrap();
    let (journal, _) = Journal::open(&dir.path().join("journal")).unwrap();
    journal.append(&gone(0)).unwrap();
    lock(&journal.writer).refused = Some("no such disk".to_owned());
    let error = journal.sync().unwrap_err().to_string();
    assert!(error.contains("no such disk"), "{error}");
    journal.rewrite(&[gone(0)]).await.unwrap();
    journal.sync().unwrap();
}
