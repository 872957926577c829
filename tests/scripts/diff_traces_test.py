"""Must catch: a difference that goes unseen in any checksum, a tolerance that is not relative, a later op
named before the first, a trace that ends early, NaN that differs from itself, no line for a broken file."""
import copy
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "diff_traces.py"


def tensor(role, **values):
    return {"role": role, "dtype": "f32", "shape": [2, 2], "sum": 1000.0, "l2": 1000.0, "first": 10.0, **values}


def trace():
    return [{"call": n, "op": op, "tensors": {"y": tensor("out"), "x": tensor("in")}, "ms": n / 7}
            for n, op in enumerate(("cast", "rope", "cast"), 1)]


class DiffTraces(unittest.TestCase):
    def diff(self, a, b, *options):
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for name, calls in (("a", a), ("b", b)):
                paths.append(pathlib.Path(folder) / name)
                text = calls if isinstance(calls, str) else "".join(json.dumps(c) + "\n" for c in calls)
                paths[-1].write_text(text, encoding="utf-8")
            run = subprocess.run([sys.executable, SCRIPT, *paths, *options], capture_output=True, text=True)
        return run.returncode, run.stdout + run.stderr

    def changed(self, call, name, **values):
        calls = copy.deepcopy(trace())
        calls[call]["tensors"][name].update(values)
        return calls

    def test_equal_traces_agree_whatever_the_times_and_types(self):
        other = self.changed(0, "y", dtype="bf16")
        other[1]["ms"] = 99
        self.assertEqual(self.diff(trace(), other), (0, "the traces agree: 3 calls\n"))

    def test_each_checksum_is_compared_relatively(self):
        for key, value in (("sum", 1001.0), ("l2", 1001.0), ("first", 10.5)):
            other = self.changed(1, "y", **{key: value})
            code, text = self.diff(trace(), other)
            self.assertEqual(code, 1)
            self.assertIn(f"call 2, rope: y parts, from inputs that agree: {key} ", text)
            self.assertEqual(self.diff(trace(), other, "--rtol", "1e-5")[0], 1)
            self.assertEqual(self.diff(trace(), other, "--rtol", "2e-3")[0], 0)

    def test_the_first_call_is_named_and_inputs_before_outputs(self):
        other = self.changed(1, "y", sum=5.0)
        other[1]["tensors"]["x"]["l2"] = 7.0
        other[2]["tensors"]["y"]["sum"] = 6.0
        code, text = self.diff(trace(), other)
        self.assertEqual(code, 1)
        self.assertIn("call 2, rope: input x differs", text)
        self.assertEqual(text.count("\n"), 1)

    def test_nan_equals_nan_only(self):
        nan = self.changed(0, "y", sum="nan", l2="nan")
        self.assertEqual(self.diff(nan, nan)[0], 0)
        self.assertEqual(self.diff(trace(), nan, "--rtol", "1")[0], 1)

    def test_other_ops_shapes_tensors_and_lengths_part(self):
        other = trace()
        other[1]["op"] = "adamw"
        self.assertIn("call 2, rope: the other trace calls adamw", self.diff(trace(), other)[1])
        self.assertIn("shape [2, 2] against [4]", self.diff(trace(), self.changed(0, "y", shape=[4]))[1])
        other = trace()
        del other[0]["tensors"]["x"]
        self.assertIn("only one trace has x", self.diff(trace(), other)[1])
        code, text = self.diff(trace()[:2], trace())
        self.assertEqual(code, 1)
        self.assertIn("ends after call 2; the other goes on with call 3, cast", text)

    def test_broken_files_and_arguments_get_one_line(self):
        for broken in ("{\n", "[]\n", '{"op": "cast"}\n'):
            code, text = self.diff(broken, trace())
            self.assertEqual((code, text.count("\n")), (65, 1), text)
            self.assertIn("a:1: no line of a trace", text)
        self.assertEqual(self.diff(trace(), trace(), "--rtol", "much")[0], 64)
        run = subprocess.run([sys.executable, SCRIPT, "/nowhere", "/nowhere"], capture_output=True, text=True)
        self.assertEqual((run.returncode, run.stderr.count("\n")), (65, 1))


if __name__ == "__main__":
    unittest.main()
