// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/collectives.hpp>
#include <shardkit/backend/nccl/comparison.hpp>
#include <shardkit/backend/nccl/connections.hpp>
#include <shardkit/backend/nccl/group.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::nccl::detail {

inline constexpr std::string_view making_sums = "the communicator for sums of 16 bits";

/// What a trial uses: the sum runs in another stream than the one in which the ranks then tell each other, which
/// would otherwise wait behind it for a rank that does not take part.
struct TrialOfSums {
    std::span<std::byte> host;
    std::span<std::byte> device;  ///< registered
    gpu::TimelineRef stream;
    gpu::TimelineRef aside;
};

/// Makes a sum of a few elements on `sums`, the ranks of `group` over a communicator that serves nothing else, as a
/// refusal ends it. Returns why NCCL refuses it on one of the ranks; then none of them has that communicator any
/// more. Collective over the group; the host waits.
/// @throws CommError
inline std::string try_sum(Connections& connections, const Group& group, Group& sums, const TrialOfSums& with,
                           SourceLocation where) {
    constexpr std::string_view nccl_call = "ncclReduceScatterConfig";
    constexpr std::size_t each = 8;
    // Behind the ranks' answers.
    std::byte* const addends = with.device.data() + group.size * sizeof(std::uint64_t);
    const ncclResult_t code = [&] {
        const Connections::Lock lock = connections.calls(making_sums, where);
        return reduce_scatter({.symmetric = true}, addends, addends + group.size * each * sizeof(std::uint16_t), each,
                              ncclBfloat16, ncclSum, sums.comm, with.aside.native());
    }();
    const bool begun = code == ncclSuccess || code == ncclInProgress;
    const ncclResult_t state = begun ? connections.state_after(sums, nccl_call, making_sums, where) : code;
    std::string refusal = state == ncclSuccess ? "" : describe(state, nccl_call, sums.comm);
    if (!refusal.empty()) { connections.end_alone(sums); }  // before a wait looks at it
    const std::vector<std::uint8_t> answers =
        gather_records(connections, group, static_cast<std::uint8_t>(refusal.empty() ? 0 : 1), with.host.data(),
                       with.device.data(), with.stream, making_sums, where);
    const auto first = std::ranges::find(answers, std::uint8_t{1});
    if (first == answers.end()) {
        with.aside.synchronize(where);
    } else if (refusal.empty()) {
        connections.end_alone(sums);
        refusal = shardkit::detail::concat("rank ", first - answers.begin(), " of them cannot");
    }
    return refusal;
}

}  // namespace shardkit::nccl::detail
