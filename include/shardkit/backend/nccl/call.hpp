// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/backend/host/memory.hpp>
#include <shardkit/backend/nccl/group.hpp>
#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/verb.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::nccl::detail {

class WorldState;

/// One call of a verb on one rank.
struct Call {
    WorldState& world;
    Group& group;
    std::string_view axes;
    Verb verb;
    SourceLocation where;
    gpu::TimelineRef stream;
    std::uint64_t number = 0;  ///< in the flight recorder; 0 also where that keeps none

    std::string doing() const { return shardkit::detail::concat(name(verb), " over ", axes); }
};

/// Copies as many bytes as `to` has: what a verb does over a group of one rank, which may have no communicator of
/// NCCL.
/// @throws gpu::Error
inline void copy_alone(const Call& call, host::ConstMemory from, host::Memory to, const gpu::TimelineRef& stream) {
    if (to.bytes() == 0 || from.at == to.at) { return; }
    gpu::detail::check(cudaMemcpyAsync(to.at, from.at, to.bytes(), cudaMemcpyDeviceToDevice, stream.native()),
                       "cudaMemcpyAsync", call.where);
}

/// Returns this rank's last calls as text, for the error of a rank that waited in vain: to compare with other ranks'
/// errors.
inline std::string last_calls(const engine::Journal& journal) {
    constexpr std::size_t most = 4;
    const std::vector<recorder::RecentCall> calls = journal.recorder().recent_calls();
    std::string text;
    for (std::size_t i = calls.size() - std::min(calls.size(), most); i < calls.size(); ++i) {
        shardkit::detail::append(text, text.empty() ? "; this rank's last calls: " : ", ",
                                 shardkit::describe(calls[i].signature, calls[i].where, calls[i].subject), " over ",
                                 calls[i].axes);
    }
    return text;
}

}  // namespace shardkit::nccl::detail
