"""CUDA graphs of compiled graphs: `mode="reduce-overhead"`.

A `Recorder` takes the place of a plan. Its first calls run the plan; then it records one call of the plan as a CUDA
graph, and replays that graph in later calls. What makes a replay compute what the plan would compute:

- *Inputs.* A CUDA graph reads fixed addresses. An input whose address has not changed between calls (a parameter, a
  buffer, a KV cache) is used in place, and every call compares its address with the recorded one. Other inputs are
  copied to memory of the recording first; those that the plan writes are copied back. An input that has moved leads to
  another recording.
- *Results.* They are in memory that belongs to the recording alone, outside of the pool that recordings share. Each
  call gives out new tensors over it, and the memory is written again only when none of them, no view of them and no
  storage object is in use any more. Otherwise another recording with memory of its own is made, and from then on the
  results that are kept are copied out.
- *Scratch memory* is in one pool per device that all recordings share. Replays on different streams wait for one
  another, so that no two use it at the same time.
- *Random numbers.* Seeds are drawn from torch's generator inside of the graph, which advances it at each replay.

A plan that cannot be recorded (`refusal.py`) runs as usual, and so does a call under another capture, under a dispatch
or function mode, or while another thread replays. `spec.py` derives the plan that is recorded; `device.py` is the
interface to CUDA, of which tests have an implementation for the CPU.

Replays run in C (`csrc/runtime/replay.c`), from finding the recording to making the results; the Recorder is called
where no recording fits. In the default mode `automatic.py` decides whether a plan is recorded.
"""
