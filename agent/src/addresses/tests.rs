use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

const NOW: Duration = Duration::from_secs(1000);
const REST: Duration = Duration::from_secs(30);

fn with(ranges: &[&str]) -> Addresses {
    let mut addresses = Addresses::default();
    addresses.set_ranges(&ranges.iter().map(|range| range.parse().unwrap()).collect::<Vec<_>>());
    addresses
}

fn all(addresses: &mut Addresses) -> Vec<String> {
    std::iter::from_fn(|| addresses.allocate("n", true, NOW).ok()).map(|got| got[0].to_string()).collect()
}

#[test]
fn a_pod_gets_one_address_a_family() {
    let mut addresses = with(&["10.1.0.0/24", "fd00:1::/64"]);
    let got = addresses.allocate("n", true, NOW).unwrap();
    assert_eq!(got, ["10.1.0.2".parse::<IpAddr>().unwrap(), "fd00:1::2".parse().unwrap()]);
    let got = addresses.allocate("n", false, NOW).unwrap();
    assert_eq!(got, ["10.1.0.3".parse::<IpAddr>().unwrap()], "no IPv6 in this kernel");
}

#[test]
fn ends_and_gateway_like_addresses_are_not_given_where_there_is_room() {
    assert_eq!(all(&mut with(&["10.0.0.0/29"])), ["10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6"]);
    assert_eq!(all(&mut with(&["10.0.0.0/30"])), ["10.0.0.1", "10.0.0.2"]);
    assert_eq!(all(&mut with(&["10.0.0.0/31"])), ["10.0.0.0", "10.0.0.1"]);
    assert_eq!(all(&mut with(&["10.0.0.7/32"])), ["10.0.0.7"]);
    assert_eq!(all(&mut with(&["fd00::/126"])), ["fd00::1", "fd00::2", "fd00::3"]);
    assert_eq!(all(&mut with(&["fd00::8/128"])), ["fd00::8"]);
}

#[test]
fn exhaustion_names_the_range_and_what_would_help() {
    let mut addresses = with(&["10.0.0.0/30", "fd00::/64"]);
    let first = addresses.allocate("n", true, NOW).unwrap();
    addresses.allocate("n", true, NOW).unwrap();
    addresses.release(first[0], NOW + REST);
    let before = addresses.usage(NOW)[1];
    let error = addresses.allocate("n", true, NOW).unwrap_err().to_string();
    assert_eq!(error, "no free address in 10.0.0.0/30: 1 in use, 1 resting, the first of them free in 31 s");
    assert_eq!(addresses.usage(NOW)[1], before, "the other family's address is not lost");
    let error = Addresses::default().allocate("worker-1", true, NOW).unwrap_err().to_string();
    assert!(error.contains("worker-1") && error.contains("podCIDR"), "{error}");
}

#[test]
fn a_released_address_rests() {
    let mut addresses = with(&["10.0.0.0/30"]);
    let a = addresses.allocate("n", true, NOW).unwrap()[0];
    addresses.allocate("n", true, NOW).unwrap();
    addresses.release(a, NOW + REST);
    assert!(addresses.allocate("n", true, NOW + REST - Duration::from_nanos(1)).is_err());
    assert_eq!(addresses.allocate("n", true, NOW + REST).unwrap(), [a]);
}

#[test]
fn a_second_range_is_used_when_the_first_is_full() {
    let mut addresses = with(&["10.0.0.0/31", "10.9.0.0/31"]);
    assert_eq!(all(&mut addresses), ["10.0.0.0", "10.0.0.1", "10.9.0.0", "10.9.0.1"]);
}

#[test]
fn changed_ranges_leave_what_is_in_use() {
    let mut addresses = with(&["10.0.0.0/31"]);
    let a = addresses.allocate("n", true, NOW).unwrap()[0];
    addresses.set_ranges(&["10.9.0.0/31".parse().unwrap()]);
    assert_eq!(addresses.allocate("n", true, NOW).unwrap()[0].to_string(), "10.9.0.0");
    addresses.set_ranges(&["10.0.0.0/31".parse().unwrap()]);
    assert_eq!(addresses.allocate("n", true, NOW).unwrap()[0].to_string(), "10.0.0.1");
    assert!(addresses.allocate("n", true, NOW).is_err());
    addresses.release(a, NOW);
    assert_eq!(addresses.allocate("n", true, NOW).unwrap(), [a]);
}

#[test]
fn what_the_journal_knows_is_not_given_again() {
    let mut addresses = with(&["10.0.0.0/30"]);
    assert!(addresses.claim("10.0.0.1".parse().unwrap()));
    assert!(!addresses.claim("10.0.0.1".parse().unwrap()), "it has an owner");
    assert_eq!(all(&mut addresses), ["10.0.0.2"]);
}

#[test]
fn thousands_a_second_also_in_a_range_that_is_nearly_full() {
    let mut addresses = with(&["10.0.0.0/16", "fd00::/64"]);
    let started = std::time::Instant::now();
    let mut last = Vec::new();
    for _ in 0..65_533 {
        last = addresses.allocate("n", true, NOW).unwrap();
    }
    for _ in 0..10_000 {
        for ip in &last {
            addresses.release(*ip, NOW);
        }
        last = addresses.allocate("n", true, NOW).unwrap();
    }
    // Bounded by what a debug build on a busy machine does, far from one search a call.
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}

proptest! {
    #[test]
    fn no_address_has_two_owners(steps in proptest::collection::vec((any::<bool>(), 0..8_usize, 0..3_u64), 1..200)) {
        let mut addresses = with(&["10.0.0.0/29", "fd00::/125"]);
        let mut owned: Vec<Vec<IpAddr>> = Vec::new();
        let mut resting: Vec<(IpAddr, Duration)> = Vec::new();
        let mut now = NOW;
        for (add, which, wait) in steps {
            now += Duration::from_secs(wait);
            if add {
                if let Ok(got) = addresses.allocate("n", true, now) {
                    for ip in &got {
                        prop_assert!(!owned.iter().flatten().any(|other| other == ip));
                        prop_assert!(!resting.iter().any(|(other, until)| other == ip && *until > now));
                    }
                    owned.push(got);
                }
            } else if which < owned.len() {
                for ip in owned.swap_remove(which) {
                    addresses.release(ip, now + Duration::from_secs(3));
                    resting.push((ip, now + Duration::from_secs(3)));
                }
            }
            let used: HashSet<_> = owned.iter().flatten().collect();
            let counted: usize = addresses.usage(now).iter().map(|usage| usage.1).sum();
            prop_assert_eq!(counted, used.len());
        }
    }
}
