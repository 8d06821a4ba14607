"""Runs all checks of the simulators and says how many passed."""

import sys

import check_aws
import check_azure
import check_gcp
import compare
import spec_aws
import spec_azure
import spec_gcp
from kit import Report, Simulator

CLOUDS = [("gcp", check_gcp, spec_gcp), ("aws", check_aws, spec_aws), ("azure", check_azure, spec_azure)]


def main() -> int:
    report = Report()
    counts = []
    with Simulator(sys.argv[1]) as sim:
        for name, checks, spec in CLOUDS:
            before = report.passed + report.failed
            sim.record()
            checks.run(sim, report)
            checked = report.passed + report.failed - before
            replies = spec.validate([e for e in sim.exchanges() if e["cloud"] == name], report)
            counts.append(f"{name}: {checked} SDK checks, {replies} replies held against the specification")
        differences = compare.run(sim, report)
        counts.append(f"moto: {compare.STEPS} steps compared, {differences} differences, all of them listed")
    print("\n".join(["", *counts]))
    print(f"{report.passed} passed, {report.failed} failed")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
