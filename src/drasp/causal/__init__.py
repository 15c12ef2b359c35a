"""How far each line of a program is what the model does: interventions, measures, and the verdict.

`evaluate` measures everything. `Trials`, drawn once, serve any number of single calls: `edited`, `attention` and
`interchange` of a candidate take one run of it, or two a line.
"""

from drasp.causal.attention import attention
from drasp.causal.complement import complement
from drasp.causal.edited import edited
from drasp.causal.evaluate import FULL, QUICK_LOOK, EvidenceEffort, Examination, evaluate
from drasp.causal.evidence import Evidence, LineEvidence
from drasp.causal.interchange import interchange
from drasp.causal.measures import Clear, Measure
from drasp.causal.mechanism import Mechanism
from drasp.causal.parts import PartEffect
from drasp.causal.splice import splice
from drasp.causal.trials import Amount, DifferingCase, Outcome, Trials

__all__ = [
    "FULL",
    "QUICK_LOOK",
    "Amount",
    "Clear",
    "DifferingCase",
    "Evidence",
    "EvidenceEffort",
    "Examination",
    "LineEvidence",
    "Measure",
    "Mechanism",
    "Outcome",
    "PartEffect",
    "Trials",
    "attention",
    "complement",
    "edited",
    "evaluate",
    "interchange",
    "splice",
]
