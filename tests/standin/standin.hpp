// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <cuda_runtime_api.h>
#include <nccl.h>

/// A CUDA runtime and an NCCL on the host, for tests on machines without a GPU. Ranks are threads, "device" memory
/// is host memory that is tracked, and streams are queues whose work runs in the least favourable order that the
/// rules of CUDA allow: a wait that the code under test forgot gives a wrong result every time.
///
/// Everything is safe to call from any thread, except reset(), and nothing may be called in a host function of a
/// stream (CUDA calls there return cudaErrorNotPermitted). Host functions run on whichever thread needs them, one at
/// a time, and must neither throw nor wait for another thread. The state is that of the process.
///
/// Stricter than the real thing: the default streams are refused; copies to and from ordinary host memory are as late
/// as those of pinned memory; new memory holds 0xff bytes; communications take device or pinned memory only, their
/// buffers overlap only in the documented in-place forms, and 16-bit sums are rounded at every addition, in rank
/// order by a reduce-scatter and in the opposite one by an all-reduce; a communicator with an error must be aborted,
/// not destroyed; a non-blocking call's work is queued at a poll. As NCCL has it: kernels for symmetric windows,
/// which only ncclCollConfig_t::algSelection "SYMK" takes here, add 16-bit floats in fp32 from the rank that gets the
/// sum upwards, and round once; where they are forced and missing, or the memory is in no window, a communicator that
/// does not block is in error from the next poll on; the end of a communicator, ncclCommAbort's too, waits until
/// streams have come to the end of its work and no graph holds any, in a group from 2.22 on only once all are told; a
/// blocking split whose peer has ended its communicator or process is an ncclRemoteError; ncclCommSplit and
/// ncclCommShrink on a non-blocking communicator, and from 2.28 on ncclCommWindowRegister, return ncclSuccess while
/// they are in progress, and write the new handle from a thread of NCCL's, after all ranks have come; one
/// communicator's work of different streams runs in the order of its launches. Not modelled: time, priorities, memory
/// pools, child graphs, waits for external events, reductions of 8-bit floats, user-defined reduction operations,
/// access of host code to device memory (it works), and data races (host functions run one at a time).
namespace standin {

/// When queued work runs.
enum class Pace {
    /// Only when a call waits for it or asks about it, and then only what that call needs.
    lazy,
    /// As soon as it is queued and what it waits for is done.
    eager
};

inline constexpr int any_device = -1;

/// Forgets everything: destroys what is left, zeroes the counters, removes injected failures, and sets the defaults
/// (8 devices, Pace::lazy, the calling thread's device 0).
/// @pre no other thread is inside the stand-in
void reset();

/// Devices that cudaGetDeviceCount answers. 0: the calls that need a device fail with cudaErrorNoDevice.
void set_device_count(int count);
/// cudaMalloc and ncclMemAlloc fail with cudaErrorMemoryAllocation past this many bytes on a device.
void set_device_memory(std::size_t bytes);
/// The number of SMs of each device. Default 132.
void set_multiprocessors(int count);
/// What ncclGetVersion answers (the headers' NCCL_VERSION_CODE stays). Default: of a library older than the headers.
inline constexpr int usual_nccl_version = 22809;
void set_nccl_version(int version);

/// The pace of all streams that exist, and of those made later.
void set_pace(Pace pace);
/// The pace of one stream.
void set_pace(cudaStream_t stream, Pace pace);
/// Holds a stream: its work stays queued, however hard it is waited for, until release(stream).
void hold(cudaStream_t stream);
void release(cudaStream_t stream);

/// cudaStreamQuery and cudaEventQuery answer cudaErrorNotReady this often for newly queued work before they make
/// progress. Default 0.
void set_query_delay(int polls);
/// ncclCommGetAsyncError answers ncclInProgress at least this often after each call on a non-blocking communicator;
/// until then the call's work is not in its stream. Default 1.
void set_in_progress_polls(int polls);
/// Whether ranks whose NCCL calls disagree get an error. Otherwise such calls never complete, which is the better of
/// what NCCL does. Default true.
void set_compares_calls(bool compares);
/// Whether NCCL has kernels for symmetric windows on these GPUs (all of one NVLink domain). Default true.
void set_symmetric_kernels(bool there);
/// What ncclCommMemStats says that a communicator has allocated. Default 0.
void set_communicator_memory(std::size_t bytes);
/// Whether an all-reduce gives all ranks the same bits, which NCCL does not promise. Otherwise each rank adds in an
/// order of its own, which shows with three ranks or more. Default true.
void set_same_bits(bool same);
/// How much a stream takes before a call that gives it more blocks, until some of it is done: kernels, copies, events
/// and waits each count as one. Default 1000, about what CUDA takes.
void set_launch_queue(std::size_t most);
/// How long a call blocks before it gives up: an error instead of a hang of the test. Default one minute.
/// CUDA calls then return cudaErrorLaunchTimeout, NCCL calls ncclSystemError, and hangs() counts.
void set_patience(std::chrono::milliseconds patience);
std::size_t hangs();
/// Threads that wait in a call at the moment.
std::size_t blocked();

/// The next call of that name (on a thread whose current device is `device`) returns `code` and does nothing.
void fail_next(std::string_view call, cudaError_t code, int device = any_device);
void fail_next(std::string_view call, ncclResult_t code, int device = any_device);
/// Likewise after `successes` further calls of that name.
void fail_after(std::string_view call, std::size_t successes, cudaError_t code, int device = any_device);
void fail_after(std::string_view call, std::size_t successes, ncclResult_t code, int device = any_device);

/// Each call of NCCL of that name returns so much later than it takes effect.
void return_late(std::string_view call, std::chrono::milliseconds after);

/// The next call of that name (on a thread whose current device is `device`) succeeds and does nothing, as if the
/// code under test had forgotten it: what a planted fault changes.
void forget_next(std::string_view call, int device = any_device);

/// A sticky error, as after an illegal address in a kernel: every call on that device returns `code` until reset();
/// cudaGetLastError does not clear it. Work of that device no longer runs.
void break_device(int device, cudaError_t code);

/// What the communicator was made with.
ncclConfig_t configuration(ncclComm_t comm);

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 31, 0)
/// A collective that was called with a configuration of its own.
struct SaidOfCall {
    std::string name;
    std::size_t count;
    ncclCollConfig_t config;
};
/// All of them since reset().
std::vector<SaidOfCall> said_of_calls();
#endif

/// From now on ncclCommGetAsyncError(comm) answers `code`, calls on comm return it, and comm's operations, queued
/// or later ones, never complete: its streams stand still until ncclCommAbort. Peers see a rank that is missing.
void set_async_error(ncclComm_t comm, ncclResult_t code);
/// The same for an error of the thread with which comm talks to the network: from now on it cannot be revoked away,
/// and nothing is made out of comm any more.
void fail_proxy(ncclComm_t comm, ncclResult_t code);
/// That rank is gone, unnoticed: its operations and those of its peers with it never complete (until the abort of
/// the rank's own communicator), and no error is reported by anyone.
void kill_rank(ncclComm_t comm);
/// Whether no rank of the communicator was killed.
bool all_live(ncclComm_t comm);
/// Likewise all communicators that the device has now: a process that ended.
void kill_device(int device);

/// Likewise before the device's `call`-th call of NCCL that does more than ask (0: the next one), which fails as all
/// later ones of that device do, CUDA's too: a process that ends in the middle.
void kill_device_at(int device, std::size_t call);
/// Whether that has not come to pass.
bool lives(int device);

/// How often the function of that name was called since reset() or reset_calls(), failed calls included; of "gathers
/// by copy engines" how many of NCCL's all-gathers would have been.
std::size_t calls(std::string_view name);
void reset_calls();

/// Pairs of communications that two devices launched in different orders: with both under way at once, real GPUs
/// deadlock. One sentence each. Communications of one ncclGroup have no order among themselves.
std::vector<std::string> order_violations();
/// Frees of pinned or NCCL memory that queued copies or communications still used, and of memory that is registered
/// with a communicator. One sentence each.
std::vector<std::string> frees_in_use();
/// Collectives whose ranks use memory at different places of their symmetric windows, or some in one and others in
/// none: NCCL's symmetric kernels would read and write elsewhere in a peer's memory, without an error. One sentence
/// each.
std::vector<std::string> uneven_windows();
/// Kernels of several communicators that waited for peers at once on one device although all their CTAs do not fit on
/// its SMs, and NCCL was not told to order its launches (NCCL_LAUNCH_ORDER_IMPLICIT, from 2.26 on, read at the first
/// call of NCCL): real GPUs may deadlock. One sentence each.
std::vector<std::string> crowded();
/// Windows of communicators that were destroyed, and not aborted, with them: NCCL 2.28.3 to 2.29.3 never give their
/// memory back.
std::size_t windows_left();

/// The call that has made the process's context on a device, empty while there is none: any call but those that ask
/// about no device's work, on a thread that has selected that device, or none at all and so device 0; from CUDA 12 on
/// also cudaSetDevice.
std::string context_maker(int device);

/// What exists; all zero when a test has cleaned up.
struct Live {
    std::size_t streams = 0, events = 0, graphs = 0, executable_graphs = 0;
    std::size_t device_allocations = 0, host_allocations = 0;
    std::size_t communicators = 0, registrations = 0, windows = 0;
    /// Operations in queues, those of destroyed streams included.
    std::size_t queued = 0;

    friend bool operator==(const Live&, const Live&) = default;
};
Live live();
/// Bytes of device memory on a device now, and the most since reset().
std::size_t device_bytes(int device);
std::size_t peak_device_bytes(int device);

/// Bytes of pinned memory that a device's threads hold now.
std::size_t pinned_bytes(int device);

/// What copies of a device's streams have been given, between its memory and the host's, since reset().
struct Copied {
    std::size_t to_device = 0, to_host = 0;  ///< bytes
    std::size_t calls = 0;
    std::size_t pageable = 0;  ///< bytes of these in memory that is not pinned: on a GPU the caller may wait for them
};
Copied copied(int device);

/// From here on the calling thread's NVTX ranges are written down: "push NAME", "pop NAME", "start NAME", "end NAME".
void record_ranges();
/// Those since the last call.
std::vector<std::string> recorded_ranges();
/// Ranges of the calling thread that are pushed or started and not over.
std::size_t open_ranges();

}  // namespace standin
