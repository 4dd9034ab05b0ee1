// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/backend/nccl/call.hpp>
#include <shardkit/backend/nccl/collectives.hpp>
#include <shardkit/backend/nccl/world_options.hpp>
#include <shardkit/backend/nccl/world_state.hpp>

namespace shardkit::nccl::detail {

/// Returns what Options::each_call says of one call of NCCL's whose buffers have so many bytes.
inline SaidOfCall said_of(const Call& call, std::size_t bytes) noexcept {
    const CallOptions& each = call.world.options().each_call;
    return {.number = each.numbered ? call.number : 0, .one_cta = bytes <= each.one_cta_up_to};
}
/// Returns the same of a gather.
inline SaidOfCall said_of_gather(const Call& call, std::size_t bytes) {
    SaidOfCall said = said_of(call, bytes);
    said.copy_engines = call.world.options().each_call.copy_engine_gathers;
    const cudaEvent_t started = call.world.gather_started();
    if (started != nullptr && call.stream.capture() == 0 &&
        call.stream.native() != call.world.streams().compute.native()) {
        said.started = started;
    }
    return said;
}
/// Makes later work of the compute stream wait until the call has started, if that was asked for.
/// @throws gpu::Error
inline void let_compute_wait(const Call& call, const SaidOfCall& said) {
    if (said.started == nullptr) { return; }
    gpu::detail::check(cudaStreamWaitEvent(call.world.streams().compute.native(), said.started, 0),
                       "cudaStreamWaitEvent", call.where);
}

}  // namespace shardkit::nccl::detail
