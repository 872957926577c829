"""Compares the program with the oracle itself, on weights and batches that tests/golden/oracle.json lacks.

    python3 oracle_live.py TEST_GOLDEN

The oracle is the file that G2_ORACLE names, or shared/tools/gemma2_oracle.py beside the source tree; it
needs torch. Without one of them: exit 77 and the reason, which CTest counts as skipped.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = 77


def skip(reason):
    print(f"Skipped: {reason}")
    sys.exit(SKIPPED)


def main():
    named = os.environ.get("G2_ORACLE")
    oracle = pathlib.Path(named) if named else ROOT.parent / "shared" / "tools" / "gemma2_oracle.py"
    if named and not oracle.is_file():
        sys.exit(f"oracle_live: G2_ORACLE names {named}, which is no file")
    if not oracle.is_file():
        skip("no oracle; G2_ORACLE may name one")
    try:
        import torch  # noqa: F401
    except ImportError:
        skip(f"{sys.executable} has no torch")
    with tempfile.TemporaryDirectory() as folder:
        golden = pathlib.Path(folder) / "oracle.json"
        subprocess.run([sys.executable, ROOT / "scripts" / "make_oracle_golden.py", oracle, "--seed", "1",
                        "--output", golden], check=True)
        test = subprocess.run([sys.argv[1], "--gtest_filter=*Oracle*", "--gtest_brief=1"],
                              env=dict(os.environ, G2_ORACLE_GOLDEN=str(golden)), check=False)
    sys.exit(test.returncode)


if __name__ == "__main__":
    main()
