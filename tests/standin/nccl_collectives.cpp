// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <sstream>

#include "communicators.hpp"
#include "state.hpp"

namespace standin {
namespace {

/// Overlap other than the documented in-place form.
bool overlaps_wrongly(const Request& request, std::size_t ranks) {
    const Signature& signature = request.signature;
    const std::size_t bytes = signature.count * element_bytes(signature.type);
    const bool is_root = signature.root == request.rank;
    const auto used = ranges(signature, ranks, is_root, request.send, request.receive);
    if (used.size() < 2 || !used[0].overlaps(used[1])) { return false; }
    const std::size_t own = static_cast<std::size_t>(request.rank) * bytes;
    const auto* const send = static_cast<const std::byte*>(request.send);
    const auto* const receive = static_cast<const std::byte*>(request.receive);
    switch (signature.kind) {
        case Kind::all_gather:
            return send != receive + own;
        case Kind::reduce_scatter:
            return receive != send + own;
        default:
            return send != receive;
    }
}

std::string check(const State& s, const Request& request, int device) {
    const Signature& signature = request.signature;
    const int ranks = static_cast<int>(request.clique->members.size());
    const bool reduces = signature.kind == Kind::all_reduce || signature.kind == Kind::reduce_scatter;
    if (signature.type < 0 || signature.type >= ncclNumTypes) { return "invalid type"; }
    if (signature.op < 0 || signature.op >= ncclNumOps) { return "invalid reduction operation"; }
    if (reduces && signature.type > ncclBfloat16) { return "reductions of 8-bit floats are not supported"; }
    if (signature.root < 0 || signature.root >= ranks) { return "invalid root"; }
    if (request.peer < 0 || request.peer >= ranks) { return "invalid peer"; }
    if (signature.count > PTRDIFF_MAX / 8 / request.clique->members.size()) { return "invalid count"; }
    for (const Range& range : ranges(signature, request.clique->members.size(), signature.root == request.rank,
                                     request.send, request.receive)) {
        if (range.bytes == 0) { continue; }
        const Allocation* const found = find_allocation(s, range.begin, range.bytes);
        if (found == nullptr) { return "a buffer is not device memory, or ends too early"; }
        if (found->type == cudaMemoryTypeDevice && found->device != device) {
            std::ostringstream text;
            text << "a buffer is memory of device " << found->device << ", the communicator's is " << device;
            return text.str();
        }
    }
    return overlaps_wrongly(request, request.clique->members.size())
               ? "send and receive buffer overlap, but not in place"
               : "";
}

/// The place of memory that peers look at in the communicator's windows.
std::optional<WindowPlace> place_of(const ncclComm& comm, const void* memory) {
    for (const auto& [handle, made] : comm.windows) {
        const auto at = static_cast<std::size_t>(static_cast<const std::byte*>(memory) -
                                                 static_cast<const std::byte*>(made.range.begin));
        if (memory >= made.range.begin && at < made.range.bytes) { return WindowPlace{made.number, at}; }
    }
    return std::nullopt;
}
/// As NCCL's symmetric kernels work (dev_runtime.cc, sym_kernels.cc): a reduction reads its peers' input, a gather
/// writes its peers' output, an all-reduce does both.
WindowPlaces places_of(const ncclComm& comm, Kind kind, const void* send, const void* receive) {
    WindowPlaces places;
    if (kind == Kind::all_reduce || kind == Kind::reduce_scatter) { places.read = place_of(comm, send); }
    if (kind == Kind::all_reduce || kind == Kind::all_gather) { places.written = place_of(comm, receive); }
    return places;
}

/// Whether NCCL makes a collective by copy engines, on one node whose GPUs reach each other: taskAppend in
/// enqueue.cc, and from 2.29 on ncclCeAvailable in ce_coll.cc.
bool takes_copy_engines(const State& s, const ncclComm& comm, const Request& request,
                        const ncclCollConfig_t* config) {
    const bool gathers = request.signature.kind == Kind::all_gather && request.clique->members.size() > 1;
    const bool says = config != nullptr && config->CTAPolicy != NCCL_CONFIG_UNDEF_INT;
    const int policy = says ? config->CTAPolicy : comm.config.CTAPolicy;
    return gathers && policy == NCCL_CTA_POLICY_ZERO && request.places.written &&
           (s.nccl_version >= 22900 || place_of(comm, request.send));
}

/// What a collective's configuration asks for.
struct Asked {
    ncclResult_t wrong = ncclSuccess;
    bool symmetric = false;
    bool forced = false;
};
Asked asked_by(const ncclComm& comm, const ncclCollConfig_t* config) {
    if (config == nullptr) { return {}; }
    const std::string algorithms = config->algSelection == nullptr ? "" : config->algSelection;
    const auto is_set = [](int value) { return value != NCCL_CONFIG_UNDEF_INT; };
    const bool wrong_ctas =
        (is_set(config->minCTAs) && config->minCTAs < 1) || (is_set(config->maxCTAs) && config->maxCTAs < 1) ||
        (is_set(config->minCTAs) && is_set(config->maxCTAs) && config->minCTAs > config->maxCTAs) ||
        (is_set(comm.config.maxCTAs) && config->maxCTAs > comm.config.maxCTAs);
    if (config->magic != 0xcafebeef || config->forceAlgSelection < 0 || config->forceAlgSelection > 1 ||
        (!algorithms.empty() && algorithms != "SYMK") || wrong_ctas || config->userProfilerTag >> 63U != 0 ||
        (is_set(config->CTAPolicy) && (config->CTAPolicy < 1 || config->CTAPolicy > NCCL_CTA_POLICY_ZERO))) {
        return {ncclInvalidArgument, false, false};
    }
    return {ncclSuccess, !algorithms.empty(), config->forceAlgSelection == 1};
}
/// The event that NCCL records when the call's kernel has started; null for none, and `wrong` set for a bad one.
CUevent_st* event_of(const State& s, const ncclComm& comm, const ncclCollConfig_t* config, const CUstream_st& in,
                     const ThreadState& thread, std::string& wrong) {
    if (config == nullptr || config->launchCompletionEvent == nullptr) { return nullptr; }
    CUevent_st* const event = s.events.find(config->launchCompletionEvent);
    if (event == nullptr || event->device != comm.member().device) { wrong = "not an event of the device"; }
    if (thread.group_depth > 0 || in.capture) { wrong = "an event in a group or a capture, which is not modelled"; }
    return event;
}
/// Whether NCCL has a kernel for symmetric windows for a sum, other than for a few bytes in any memory:
/// ncclSymkImplemented and ncclSymkPickKernel in sym_kernels.cc.
bool has_symmetric_kernel(const State& s, const Request& request, const ncclComm& comm) {
    const Signature& sum = request.signature;
    const bool scatters = sum.kind == Kind::reduce_scatter;
    return s.symmetric_kernels && s.nccl_version >= 23102 && request.clique->members.size() > 1 &&
           (scatters || sum.kind == Kind::all_reduce) && sum.op == ncclSum &&
           (sum.type == ncclFloat16 || sum.type == ncclBfloat16 || sum.type == ncclFloat32) && request.places.read &&
           (scatters || place_of(comm, request.receive));
}

ncclResult_t communicate(Signature signature, int peer, const void* send, void* receive, ncclComm_t comm,
                         cudaStream_t stream, const ncclCollConfig_t* config = nullptr) {
    const std::string called = std::string(name(signature.kind)) + (config != nullptr ? "Config" : "");
    return nccl_call(called, [&](State& s, Lock& lock, ThreadState& thread) {
        const auto refuse = [&](ncclResult_t code, const std::string& text) {
            if (thread.group_depth > 0) { thread.group_error = code; }
            return nccl_error(s, code, called + ": " + text);
        };
        if (const ncclResult_t ready = check_ready(s, comm); ready != ncclSuccess) {
            if (thread.group_depth > 0) { thread.group_error = ready; }
            return ready;
        }
        const int device = comm->member().device;
        cudaError_t error = cudaSuccess;
        CUstream_st* const in = find_stream(s, stream, error);
        if (in == nullptr) { return refuse(ncclInvalidArgument, "the default stream, or not a stream"); }
        if (in->device != device) { return refuse(ncclInvalidArgument, "a stream of another device"); }
        Request request{comm->clique,
                        comm->rank,
                        signature,
                        peer,
                        send,
                        receive,
                        places_of(*comm, signature.kind, send, receive)};
        if (const std::string wrong = check(s, request, device); !wrong.empty()) {
            return refuse(ncclInvalidArgument, wrong);
        }
        const Asked asked = asked_by(*comm, config);
        if (asked.wrong != ncclSuccess) { return refuse(asked.wrong, "a configuration with an invalid member"); }
        if (config != nullptr && s.nccl_version < 23102) { return refuse(ncclInternalError, "not in this NCCL"); }
        if (config != nullptr) { s.said_of_calls.push_back({name(signature.kind), signature.count, *config}); }
        std::string wrong_event;
        request.started = event_of(s, *comm, config, *in, thread, wrong_event);
        if (!wrong_event.empty()) { return refuse(ncclInvalidArgument, wrong_event); }
        std::string refusal;
        if (asked.symmetric) {
            request.signature.symmetric = has_symmetric_kernel(s, request, *comm);
            if (!request.signature.symmetric && asked.forced) {
                refusal = "algSelection names only symmetric kernel(s) that are unavailable for " + called;
                if (comm->blocking) { return refuse(ncclInvalidArgument, refusal); }
            }
        }
        if (takes_copy_engines(s, *comm, request, config)) { ++s.calls["gathers by copy engines"]; }
        const bool collective = signature.kind != Kind::send && signature.kind != Kind::receive;
        if (collective && signature.count == 0) { return ncclSuccess; }
        ++thread.group_depth;
        if (!refusal.empty()) { thread.group.refusal = refusal; }
        thread.group.calls.push_back({request, in});
        auto& comms = thread.group.comms;
        if (std::find(comms.begin(), comms.end(), comm) == comms.end()) { comms.push_back(comm); }
        return end_group(s, lock, thread);
    });
}

}  // namespace
}  // namespace standin

using standin::communicate;
using standin::Kind;

ncclResult_t ncclAllGather(const void* send, void* receive, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
    return communicate({Kind::all_gather, count, type, ncclSum, 0}, 0, send, receive, comm, stream);
}
ncclResult_t ncclReduceScatter(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    return communicate({Kind::reduce_scatter, count, type, op, 0}, 0, send, receive, comm, stream);
}
ncclResult_t ncclAllReduce(const void* send, void* receive, std::size_t count, ncclDataType_t type, ncclRedOp_t op,
                           ncclComm_t comm, cudaStream_t stream) {
    return communicate({Kind::all_reduce, count, type, op, 0}, 0, send, receive, comm, stream);
}
ncclResult_t ncclAllGatherConfig(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                                 ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config) {
    return communicate({Kind::all_gather, count, type, ncclSum, 0}, 0, send, receive, comm, stream, config);
}
ncclResult_t ncclBroadcastConfig(const void* send, void* receive, std::size_t count, ncclDataType_t type, int root,
                                 ncclComm_t comm, cudaStream_t stream, const ncclCollConfig_t* config) {
    return communicate({Kind::broadcast, count, type, ncclSum, root}, 0, send, receive, comm, stream, config);
}
ncclResult_t ncclReduceScatterConfig(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                                     ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
                                     const ncclCollConfig_t* config) {
    return communicate({Kind::reduce_scatter, count, type, op, 0}, 0, send, receive, comm, stream, config);
}
ncclResult_t ncclAllReduceConfig(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                                 ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream,
                                 const ncclCollConfig_t* config) {
    return communicate({Kind::all_reduce, count, type, op, 0}, 0, send, receive, comm, stream, config);
}
ncclResult_t ncclBroadcast(const void* send, void* receive, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
    return communicate({Kind::broadcast, count, type, ncclSum, root}, 0, send, receive, comm, stream);
}
ncclResult_t ncclSend(const void* send, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return communicate({Kind::send, count, type, ncclSum, 0}, peer, send, nullptr, comm, stream);
}
ncclResult_t ncclRecv(void* receive, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    return communicate({Kind::receive, count, type, ncclSum, 0}, peer, nullptr, receive, comm, stream);
}
