"""Runs all checks of the simulators and says how many passed."""

import sys

import check_aws
import check_azure
import check_gcp
import compare
import spec_aws
import spec_azure
import spec_gcp
import teeth
from kit import Report, Simulator

CLOUDS = [("gcp", check_gcp, spec_gcp), ("aws", check_aws, spec_aws), ("azure", check_azure, spec_azure)]


def hold_against(cloud, spec, replies, report):
    """Every reply that was recorded is one that the vendor's specification allows."""
    for exchange in replies:
        found = spec.faults(exchange)
        if found:
            report.fail(f"{cloud}  reply to {exchange['action']}", "\n".join(found))
        else:
            report.passed += 1


def main() -> int:
    report = Report()
    counts = []
    with Simulator(sys.argv[1]) as sim:
        for name, checks, spec in CLOUDS:
            before = report.passed + report.failed
            sim.record()
            checks.run(sim, report)
            checked = report.passed + report.failed - before
            replies = [exchange for exchange in sim.exchanges() if exchange["cloud"] == name]
            hold_against(name, spec, replies, report)
            spoiled = teeth.check(name, replies, spec.faults, report)
            counts.append(
                f"{name}: {checked} SDK checks, {len(replies)} replies held against the specification, "
                f"{spoiled} spoiled replies found out"
            )
        differences = compare.run(sim, report)
        counts.append(f"moto: {compare.STEPS} steps compared, {differences} differences")
    print("\n".join(["", *counts]))
    print(f"{report.passed} passed, {report.failed} failed")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
