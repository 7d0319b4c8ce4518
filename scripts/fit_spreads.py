#!/usr/bin/env python3
"""Print how the marginal likelihood of all rows answers to each prior spread of the step model.

One line a spread in ``models/step_priors.py``: its value, and what the logarithm of the marginal
likelihood (Laplace's approximation at the posterior's maximum) gains or loses where the spread is
a third smaller and half as large again. Both negative: the rows want it where it is.
"""

from __future__ import annotations

import sys
from collections.abc import MutableMapping

import numpy as np

from qwendeploy.evaluation.transfer import fitted_rows
from qwendeploy.models import step_priors
from qwendeploy.models.transfer_fit import Fitter, Observation

FACTORS = (2 / 3, 3 / 2)
TABLES: dict[str, MutableMapping[str, float]] = {
    "": step_priors.EFFECTS,
    "home ": step_priors.HOME,
    "link ": step_priors.LINK_SPREAD,
    "acceptance ": step_priors.RIG_ACCEPT,
}


def evidence(observations: list[Observation]) -> float:
    """Return the log marginal likelihood up to a constant that no spread changes."""
    problem = Fitter(observations).problem
    theta, covariance = problem.solve()
    predicted = problem.log_model(theta[None])[0]
    cost = problem.cost(predicted, theta, np.ones(len(predicted), bool))
    volume = float(np.linalg.slogdet(covariance)[1]) / 2
    return volume - cost - float(np.sum(np.log(problem.spread)))


def main() -> int:
    """Print the table."""
    observations = [item.observation for item in fitted_rows()]
    usual = evidence(observations)

    for mark, table in TABLES.items():
        for name, value in list(table.items()):
            gains = []
            for factor in FACTORS:
                table[name] = value * factor
                gains.append(evidence(observations) - usual)
            table[name] = value
            smaller, larger = gains
            print(f"{mark + name:20s} {value:5.2f}  smaller {smaller:+5.1f}  larger {larger:+5.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
