"""What `optimize` gives back: a kernel that shows how it was found, and that can be called."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from . import cache
from .errors import ExpressionError
from .notation import parse
from .notices import RemarkWarning, SimulationWarning, SpillWarning, tell
from .plan import Plan
from .record import Cost, Derivation, Record, Schedule, Spec

if TYPE_CHECKING:
    from .binding import Bound
    from .runtime.assembler import Assembly
    from .simulator import Counters

_OPTIONS = ("out", "stream", "backend")


class Kernel:
    """A compiled expression: call it with one array for each input, by name.

    Arrays may lie anywhere, with any strides that are not negative, as long as their last
    dimension is contiguous: where they do not lie as their tensors say, a kernel of its own is
    compiled at the first such call, one for each alignment of its rows (`specialized`).
    Lengths that the expression leaves open are read off the arrays' shapes; one that no shape
    tells is given as a number, by its name.

    Outputs come back as the kind of the first input (numpy, PyTorch, CuPy; else a `DeviceArray`),
    one array or a tuple of them, without gaps; those with as many dimensions as the first input
    have them in its order in memory. `counters` holds what the last simulated call counted,
    `timings` how long the steps of compiling took, in seconds.
    """

    def __init__(self, record: Record) -> None:
        _check_names(record)
        self.record = record
        self._variants: dict[tuple[tuple[str, int], ...], Kernel] = {}
        self.counters: Counters | None = None
        self.timings: dict[str, float] = {}
        self._warned = False

    def __repr__(self) -> str:
        takes = ", ".join(map(str, self.inputs))
        gives = ", ".join(map(str, self.outputs))
        return f"Kernel({self.name} for {self.target}: {takes} -> {gives})"

    # what was found

    @property
    def name(self) -> str:
        return self.record.name

    @property
    def target(self) -> str:
        """The architecture that the PTX is printed for, such as "sm_120"."""
        return self.record.target

    @property
    def derivation(self) -> Derivation:
        """From the naive term to the chosen one: which laws, before and after. Prints itself."""
        return self.record.derivation

    @property
    def term(self) -> Any:
        """The chosen scheduled term: an expression, or a tuple of one for each output.

        `notation.text` writes it for machines, `listing` for people.
        """
        return self.terms[0] if len(self.terms) == 1 else self.terms

    @functools.cached_property
    def terms(self) -> tuple[Any, ...]:
        """The chosen scheduled term of each output."""
        return tuple(map(parse, self.record.term.splitlines()))

    @property
    def schedule(self) -> Schedule:
        """The knobs as emitted, spelled as pins are."""
        return self.record.schedule

    @property
    def cost(self) -> Cost:
        """The µs that the cost model predicts, in all and by resource."""
        return self.record.cost

    @property
    def passes(self) -> int:
        """Passes over a streamed axis, summed over the plan."""
        return self.record.passes

    @property
    def tile(self) -> str:
        """The tile program, printed."""
        return self.record.tile

    @property
    def plan(self) -> Plan:
        """The launches, at typical lengths, for arrays that lie as close as their tensors say."""
        return self.record.plan.typical

    @property
    def inputs(self) -> tuple[Spec, ...]:
        return self.record.inputs

    @property
    def outputs(self) -> tuple[Spec, ...]:
        return self.record.outputs

    @property
    def workspace_bytes(self) -> int:
        """Global memory beyond inputs and outputs that one call takes."""
        return self.plan.workspace_bytes

    # what is emitted

    @property
    def ptx(self) -> str:
        return self.record.plan.ptx

    @functools.cached_property
    def assembly(self) -> Assembly:
        """The assembled module: cubin, registers, shared, stack and spilled bytes of each entry.

        From the disk cache where it was assembled before; AssemblyError where it is refused.
        """
        made = cache.assembled(self.ptx, self.target)
        spilled = [f"{e.name} {e.spill_bytes} bytes" for e in made.entries if e.spill_bytes]
        if spilled:
            tell(
                f"{self.name}: the assembler spilled registers of {', '.join(spilled)}; "
                f"a smaller TILE or a higher REGS than in {dict(self.schedule)} avoids it",
                SpillWarning,
            )
        for remark in made.remarks:
            tell(f"{self.name}: {made.assembler}: {remark}", RemarkWarning)
        return made

    @property
    def unpredicted(self) -> tuple[str, ...]:
        """Its instructions whose bits the simulator does not predict, by mnemonic."""
        from .execution import unpredicted

        return unpredicted(self.ptx)

    @property
    def cubin(self) -> bytes:
        return self.assembly.cubin

    @functools.cached_property
    def sass(self) -> str:
        """The machine code, disassembled; AssemblyError where there is no disassembler."""
        from .runtime.sass import disassemble

        return disassemble(self.cubin)

    # running it

    def __call__(self, /, *, out: Any = None, stream: Any = None, **arrays: Any) -> Any:
        """Compute the outputs, on the GPU if one fits, else in the simulator (with one warning).

        `arrays` are the inputs, and numbers for lengths that no shape tells, by name; `out` is the
        array, or tuple of arrays, to write into; `stream` the CUDA stream to run on (an int
        handle, or a stream of PyTorch, CuPy or cuda.core), by default the current one of the
        inputs' library. Raises InputError for arrays that do not fit, ScheduleError where they
        lie so that a pin cannot be honoured, DeviceError for what the driver reports and for a
        simulation that would take over a minute.
        """
        return self._run(None, out, stream, arrays)

    def run(
        self, /, *, backend: str | None = None, out: Any = None, stream: Any = None, **arrays: Any
    ) -> Any:
        """Like calling the kernel, with `backend` "gpu" or "sim" forced, and then no warning."""
        return self._run(backend, out, stream, arrays)

    def specialized(self, /, *, out: Any = None, **arrays: Any) -> Kernel:
        """The kernel that runs a call with these arrays: this one, or one for how they lie.

        Its schedule says how they can be moved: tensor copies want addresses and strides of whole
        16 bytes. Raises InputError and ScheduleError as a call does.
        """
        from .binding import bind

        return self._for(bind(self.record, arrays, out))

    def check(self, /, **arrays: Any) -> None:
        """Raise InputError where integer inputs lead outside of an array: page numbers, offsets.

        A call with arrays in host memory does this by itself. One with arrays on a GPU checks its
        lengths alone, since it would have to wait for the arrays; this copies them to the host.
        """
        from .binding import bind

        self._check_data(bind(self.record, arrays, None))

    def _check_data(self, bound: Bound, *, of_arrays: bool = True) -> None:
        """Check what the call's lengths lead to, and what its integer arrays hold."""
        if not self.record.checks:
            return
        from .data_checks import arrays_of, check_data
        from .runtime.arrays import on_host

        checks = [each for each in self.record.checks if of_arrays or not arrays_of((each,))]
        held = {name: on_host(bound.inputs[name]) for name in arrays_of(checks)}
        check_data(self.name, checks, held, bound.lengths)

    def _for(self, bound: Bound) -> Kernel:
        if not bound.alignments:
            return self
        key = tuple(sorted(bound.alignments.items()))
        if key not in self._variants:
            from .specialization import specialized

            what = ", ".join(
                f"{name} with strides {bound.strides[name]} at {bound.shifts[name]} past 16 bytes"
                for name in bound.alignments
            )
            where = f"{self.name}: arrays that do not lie as its tensors say ({what})"
            record = specialized(self.record, bound.alignments, where)
            self._variants[key] = Kernel(record)
        return self._variants[key]

    def _run(self, forced: str | None, out: Any, stream: Any, arrays: dict[str, Any]) -> Any:
        from . import execution  # imported when something runs: a cached kernel is had without
        from .binding import bind

        bound = bind(self.record, arrays, out)
        self._check_data(bound, of_arrays=bound.device is None)
        backend = execution.choose(self.record, bound, forced)
        variant = self._for(bound)
        record, plan = variant.record, variant.record.plan.at(bound.lengths, bound.strides)
        if backend == "gpu":
            return execution.run_on_gpu(record, plan, bound, variant.assembly, stream)
        if forced is None:
            notice = execution.simulation_notice(record, plan)
            if not self._warned:
                tell(notice, SimulationWarning)
                self._warned = True
        result, self.counters = execution.simulate(record, plan, bound)
        return result


def _check_names(record: Record) -> None:
    """Inputs, lengths and options are keywords of one call."""
    inputs = [spec.name for spec in record.inputs]
    for name in inputs:
        if name in _OPTIONS:
            raise ExpressionError(
                f"{record.name}: an input is called {name!r}, which is an option of the call; "
                "give the tensor another name"
            )
    for name in record.lengths:
        if name in _OPTIONS or name in inputs:
            what = "an input" if name in inputs else "an option of the call"
            raise ExpressionError(
                f"{record.name}: a length is called {name!r}, as {what} is; give it another name"
            )
