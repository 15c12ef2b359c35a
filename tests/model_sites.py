"""All sites of a model, by kind."""

from drasp.sites import (
    NO_COMPONENT,
    Anatomy,
    Component,
    Edge,
    NormSite,
    Path,
    Pattern,
    Product,
    Read,
    Receiver,
    Site,
)


def sites_of(anatomy: Anatomy) -> dict[str, list[Site]]:
    """All sites of a model by kind, but of paths only those of at most two heads."""
    heads = [sender for sender in anatomy.senders if sender.kind == "head"]
    paths = [Path(origin, (head,)) for head in heads for origin in anatomy.senders_to(head.receivers[2])]
    paths += [
        Path(p.origin, (*p.heads, head))
        for head in heads
        for p in paths
        if p.heads[0] in anatomy.senders_to(head.receivers[2])
    ]

    def senders(receiver: Receiver) -> list[Component | Path]:
        return [*anatomy.senders_to(receiver), *(p for p in paths if p.heads[-1] in anatomy.senders_to(receiver))]

    return {
        "component": list(anatomy.senders),
        "receiver": list(anatomy.receivers),
        "pattern": [Pattern(head) for head in heads],
        "norm": [
            NormSite(r) for r in (*anatomy.receivers, *(Receiver(i, "attention") for i in range(anatomy.n_layers)))
        ],
        "edge": list(anatomy.edges),
        "path": [Edge(p, r) for r in anatomy.receivers for p in senders(r) if isinstance(p, Path)],
        "read": [
            Read(s, r)
            for r in anatomy.receivers
            for s in senders(r)
            if r.kind in ("value", "out") and (isinstance(s, Path) or s.kind != "head")
        ],
        "product": [
            Product(q, k, head)
            for head in heads
            for q in (NO_COMPONENT, *senders(head.receivers[0]))
            for k in (NO_COMPONENT, *senders(head.receivers[1]))
        ],
    }
