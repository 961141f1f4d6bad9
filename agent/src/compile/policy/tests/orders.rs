//! Events in every order, some twice, some never, and several at once; then a list of what there is.

use proptest::sample::Index;

use super::*;

/// What becomes of an event on its way.
#[derive(Clone, Debug)]
struct Fate {
    /// Where it stands among all.
    at: u16,
    lost: bool,
    /// It comes once more, when something newer may have come.
    again: Option<u16>,
    /// It is taken in together with the one before.
    with_the_last: bool,
}

fn fate() -> impl Strategy<Value = Fate> {
    let again = prop::option::weighted(0.2, any::<u16>());
    (any::<u16>(), prop::bool::weighted(0.2), again, prop::bool::weighted(0.6))
        .prop_map(|(at, lost, again, with_the_last)| Fate { at, lost, again, with_the_last })
}

/// What a source tells of a story: nothing for sure but the list at its end. What the runtime does is nobody's to shuffle.
fn muddled(story: &[Happening], fates: &[Fate]) -> Vec<Happening> {
    let of_runtime = |happening: &Happening| {
        matches!(happening, Happening::Added(..) | Happening::AddedUnnamed(_) | Happening::Deleted(_))
    };
    let mut told: Vec<(u16, &Happening)> = Vec::new();
    for (happening, fate) in story.iter().zip(fates.iter().cycle()) {
        if of_runtime(happening) || !fate.lost {
            told.push((fate.at, happening));
        }
        if let Some(at) = fate.again.filter(|_| !of_runtime(happening)) {
            told.push((at, happening));
        }
    }
    told.sort_by_key(|(at, _)| *at);
    let mut in_order = story.iter().filter(|happening| of_runtime(happening));
    let told = told.into_iter().map(|(_, happening)| match of_runtime(happening) {
        true => in_order.next().unwrap_or(happening),
        false => happening,
    });
    told.cloned().collect()
}

/// Events that are taken in at once.
fn batches<'a>(told: &'a [Happening], fates: &[Fate]) -> Vec<&'a [Happening]> {
    let mut batches = Vec::new();
    let mut begin = 0;
    for (end, fate) in (1..=told.len()).zip(fates.iter().cycle()) {
        if !fate.with_the_last || end == told.len() {
            batches.push(&told[begin..end]);
            begin = end;
        }
    }
    batches
}

proptest! {
    #![proptest_config(config(12))]

    #[test]
    fn whatever_order_events_come_in_a_list_leaves_what_there_is(
        story in generate::story(),
        fates in prop::collection::vec(fate(), 1..40),
        cut in any::<Index>(),
    ) {
        let (mut is, mut cluster) = (Objects::default(), Cluster::default());
        for happening in &story {
            is.apply(happening, &mut cluster);
        }
        let mut told = muddled(&story, &fates);
        let mut believed = Objects::default();
        for happening in &told {
            believed.apply(happening, &mut Cluster::default());
        }
        prop_assert_eq!(believed.locals(), is.locals());
        let list = believed.relist(&is);
        let cut = cut.index(list.len() + 1);
        let (first, second) = list.split_at(cut);
        let batches_before = batches(&told, &fates);
        // A list in two parts, and once more whole: as the watches of kinds end at different times.
        let story = batches_before.into_iter().chain([first, second, list.as_slice()]).filter(|batch| !batch.is_empty());
        follow(story, Budget::default())?;

        // What is told twice is nothing to do.
        told.extend(list.iter().cloned());
        let (mut believed, mut cluster) = (Objects::default(), Cluster::default());
        let mut policies = Policies::resume(&Catalogue::default(), &Pinned::default(), &cluster, &BTreeMap::new()).policies;
        let touched: Vec<Touched> = told.iter().flat_map(|happening| believed.apply(happening, &mut cluster)).collect();
        policies.update(&cluster, touched);
        policies.collect(&cluster);
        let touched: Vec<Touched> = list.iter().flat_map(|happening| believed.apply(happening, &mut cluster)).collect();
        prop_assert_eq!(policies.update(&cluster, touched), Change::default());
        prop_assert_eq!(truth(&believed.world(), &believed.locals()), truth(&is.world(), &is.locals()));
    }
}
