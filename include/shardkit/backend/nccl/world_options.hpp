// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include <shardkit/backend/cuda/toolkit_elements.hpp>
#include <shardkit/comm/compare_calls.hpp>
#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/core/checked.hpp>

struct CUstream_st;

namespace shardkit::nccl {

/// How the memory of containers is registered with NCCL.
enum class Registration : std::uint8_t {
    none,
    /// Chunks are allocated with ncclMemAlloc and registered with every communicator, so that NCCL can move data
    /// without copies of its own. NCCL may then add in another order. Needs NCCL 2.19.
    buffers,
    /// Chunks are symmetric windows of every communicator, for NCCL's kernels that read peers' memory at the same
    /// offset. Making a container is then collective: all ranks make the same ones in the same order, as its verbs
    /// require anyway. NCCL may add in another order. Needs NCCL 2.27.
    windows,
};

/// What NCCL's collectives save, at the cost of bandwidth: see NCCL_CTA_POLICY.
enum class CtaPolicy : std::uint8_t {
    by_default,  ///< NCCL decides
    efficiency,  ///< fewer CTAs where little bandwidth is lost; needs NCCL 2.27
    zero,        ///< gathers by copy engines, without CTAs; needs Registration::windows and NCCL 2.28
};

/// How a communicator's verbs are captured in CUDA graphs, so that NCCL can leave out what it needs otherwise: see
/// NCCL's graphUsageMode. Needs NCCL 2.29.
enum class GraphUsage : std::uint8_t {
    by_default,  ///< NCCL expects several graphs at once, and verbs outside of graphs
    none,        ///< no verb is captured
    one,         ///< all verbs are captured, in one graph at a time
};

/// What NCCL is told of each collective alone (ncclCollConfig_t), where the environment says nothing else. Needs NCCL
/// 2.31.2. None of it changes bits.
struct CallOptions {
    /// The largest buffer, in bytes of all ranks' parts together, whose collective takes one CTA; 0: NCCL decides for
    /// all.
    std::size_t one_cta_up_to = 0;
    /// Lets gathers of containers and of `all_gather` be made by copy engines as with CtaPolicy::zero, and all else
    /// as Options::cta_policy says, for example with `efficiency`, which a communicator cannot have both. Needs
    /// Registration::windows.
    bool copy_engine_gathers = false;
    /// Gives NCCL's profiler plugins the number that the call has in the flight recorder (userProfilerTag).
    bool numbered = false;
    /// Lets work that is given to the compute stream behind a gather on another stream begin when that gather's
    /// kernel has all its CTAs on the GPU, or the gather before it is over: for gathers ahead of their layer, which
    /// products that fill the GPU would keep out. Not in captures. Needs NCCL 2.32.
    bool resident_gathers = false;

    friend bool operator==(const CallOptions&, const CallOptions&) noexcept = default;
};

/// How a World adds floating-point elements of several ranks.
class Sums {
  public:
    enum Kind : std::uint8_t {
        /// NCCL adds, in an order of its own. 16-bit addends travel as fp32, because NCCL's rings and trees would
        /// round
        /// to 16 bits at every addition.
        widened,
        /// Addends travel as they are, and a kernel adds them in rank order, in fp32 (fp64 in fp64), rounded once:
        /// the
        /// bits of the engine `threads`.
        exchanged,
        /// 16-bit addends travel as they are, and NCCL's kernels for symmetric windows add them in fp32 and round the
        /// sum to 16 bits, whatever type it is wanted in; between NVLink domains they also round each domain's part
        /// of
        /// a sum. For memory of the World's, such as that of containers and Communicator::buffer; other memory, and
        /// other elements, are `widened`. Needs Registration::windows and NCCL 2.31.2. Where NCCL has no such kernel
        /// for a group of ranks, they all go back to `widened`, and the first says so on stderr. Costs a communicator
        /// for each group.
        by_nccl
    };

    constexpr Sums(Kind kind) noexcept  // NOLINT(google-explicit-constructor): the usual way to say it
        : kind_(kind), exchange_from_(kind == exchanged ? 0 : engine::never_exchanged) {}
    /// Says that sums of at least `bytes` addends on each rank, in bytes, are `exchanged`, and others `widened`.
    /// The planner::communication_seconds of plans with and without say where an exchange is faster.
    static constexpr Sums exchanged_from(std::size_t bytes) noexcept {
        Sums sums = exchanged;
        sums.exchange_from_ = bytes;
        return sums;
    }

    /// Returns the size of a rank's addends from which on a sum is an exchange.
    constexpr std::size_t exchange_from() const noexcept { return exchange_from_; }

    friend constexpr bool operator==(const Sums&, const Sums&) noexcept = default;

  private:
    Kind kind_;
    std::size_t exchange_from_;
};

}  // namespace shardkit::nccl

// Checked builds compare calls by default: see core/checked.hpp.
namespace shardkit::nccl SHARDKIT_CHECKED_BUILD {

/// How a World communicates. Sizes, timeout, registration, separate_reductions, compare_calls, sums, each_call and
/// survivable must be the same on every rank.
struct Options {
    /// The user's streams (cudaStream_t is this pointer), which must outlive the World; null: the World makes its
    /// own. Default streams are refused.
    CUstream_st* compute = nullptr;
    CUstream_st* communication = nullptr;

    /// The rank's GPU; -1: the one that is selected when the World is made.
    int device = -1;

    /// The longest time that a rank waits for its peers: to connect, to take part in a call, and, whenever the host
    /// waits for a stream, for the stream's work, including the user's own. It counts while no event between the
    /// streams happens, so that much work is no failure. It also counts while the host does not wait, or is blocked
    /// in a launch, and a verb is under way. Rank::deadline sets another time for a phase.
    std::chrono::milliseconds timeout = std::chrono::minutes(10);

    /// Called with a text when half of that time has passed in a wait. It must not throw.
    std::function<void(const std::string& text)> on_late{};
    /// Where the rank's last calls are written, "PREFIX-rank-0.json" and so on: when a rank fails or the timeout has
    /// passed, and on SIGUSR1, unless the program handles it. Where all ranks see these files, which a thread of each
    /// rank looks for, the error of the timeout says where they are. Empty: nowhere.
    std::string record{};

    /// The largest number of verbs that the host gives to the GPU before it waits for the first of them, at least 1.
    /// Thereby it notices that a peer is gone even in a loop that never waits otherwise. A launch of a CUDA graph
    /// counts through World::keep_pace.
    std::size_t verbs_ahead = 8;

    /// The largest number of CTAs, and thereby SMs, that NCCL uses for a collective. More CTAs move more bytes per
    /// second, and leave less of the GPU to other kernels. 0: NCCL decides, but where reductions are separate it is
    /// just below a quarter of the GPU's SMs, so that both communicators together take less than half of them.
    int max_ctas = 0;
    /// What NCCL's collectives save.
    CtaPolicy cta_policy = CtaPolicy::by_default;
    /// How verbs are captured in CUDA graphs.
    GraphUsage graph_usage = GraphUsage::by_default;
    /// Whether NCCL orders captured verbs by a stream of its own, beside the World's order: see NCCL's
    /// graphStreamOrdering. Off: a captured step has fewer nodes. Needs GraphUsage::one and NCCL 2.30.
    bool graph_stream_ordering = true;
    /// What NCCL is told of each collective.
    CallOptions each_call{};

    /// The name of the communicators in NCCL's logs and profiles, from NCCL 2.27 on: a string that outlives the
    /// process's communicators, for example a literal. Null: none.
    const char* name = nullptr;

    /// Lets split communicators share the World's connections and buffers (ncclConfig_t::splitShare). This saves GPU
    /// memory, but none of them can be aborted alone, so it is not for a survivable World. NCCL then runs their work
    /// one after the other: separate_reductions would gain nothing, and does nothing.
    bool split_share = false;

    /// Gives reductions a stream of their own, and a second communicator where gathers or a layer's verbs use the
    /// same ranks, so that both can run at once. Costs staging_bytes once more, and NCCL's memory for each such
    /// communicator, which is made when a group of parameters first asks for it.
    bool separate_reductions = true;

    /// The smallest size of the chunks in which memory for containers is allocated from CUDA.
    std::size_t arena_chunk_bytes = std::size_t{64} << 20U;

    /// The size of the memory in which sums of 16-bit elements are made in fp32, and in which addends that are
    /// exchanged and maxima of floating-point elements are collected. A sum that needs more is made in pieces, each
    /// at the cost of a verb.
    std::size_t staging_bytes = std::size_t{32} << 20U;
    /// The size up to which the staging memory of gradients grows where a group of parameters is made whose largest
    /// reduction needs more: 4 bytes for each of the group's elements where 16-bit gradients are summed. 0: 256 MiB,
    /// or 4 MiB for each rank if that is more, so that each rank's part of a piece is 2 MiB and more.
    std::size_t most_staging_bytes = 0;

    /// How floating-point elements are added. Sums along a tree are always exchanges.
    Sums sums = Sums::widened;

    /// How these chunks are registered with NCCL.
    Registration registration = Registration::none;

    /// Lets ranks compare their calls, so that an error names the calls and ranks that disagree, where NCCL would
    /// hang or move wrong bytes. Messages are not compared. Costs a second communicator for each group, on a stream
    /// of its own, and the host waits for each comparison; off costs nothing.
    CompareCalls compare_calls = checked ? CompareCalls::each_call : CompareCalls::off;

    /// After a failure, revokes the World's communicator, which ends its work and keeps it, so that it can be shrunk
    /// to the remaining ranks: see Survivors. Split communicators are aborted. Needs NCCL 2.28.7.
    bool survivable = false;
};

}  // namespace shardkit::nccl SHARDKIT_CHECKED_BUILD
