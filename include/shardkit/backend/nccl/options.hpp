// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>

#include <cuda_runtime_api.h>

#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/comm/compare_calls.hpp>
#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/core/checked.hpp>
#include <shardkit/core/error.hpp>

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
    /// `planner::exchange_pays_from` of a time model says from which size on an exchange is faster.
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

/// The first NCCL with ncclMemAlloc and ncclCommRegister.
inline constexpr int registration_version = 21901;
/// The first NCCL with ncclCommWindowRegister and ncclCommShrink.
inline constexpr int windows_version = 22703;
/// The first NCCL with ncclCommRevoke.
inline constexpr int revoke_version = 22807;
/// The first NCCL with CtaPolicy::zero.
inline constexpr int zero_cta_version = 22803;
/// The first NCCL with ncclConfig_t::launchOrderImplicit.
inline constexpr int configured_order_version = 23102;
/// The first NCCL with ncclReduceScatterConfig, for Sums::by_nccl.
inline constexpr int configured_sums_version = 23102;
/// The first NCCL with GraphUsage.
inline constexpr int graph_usage_version = 22900;

namespace detail {

/// What plans need to know of every World.
inline constexpr engine::Traits usual_traits{.sums_travel_widened = true,
                                             .gathers = engine::Crossing::ring,
                                             .sums = engine::Crossing::ring,
                                             .adds_along_trees = true};

/// Checks that the loaded NCCL supports a registration.
/// @throws CommError that names both versions, when NCCL is too old for it
inline void require_registration(Registration registration, SourceLocation where) {
    if (registration == Registration::buffers) { require_version(registration_version, "registered buffers", where); }
    if (registration == Registration::windows) { require_version(windows_version, "registered windows", where); }
}

}  // namespace detail

// Checked builds compare calls by default: see core/checked.hpp.
}  // namespace shardkit::nccl

namespace shardkit::nccl SHARDKIT_BUILD {

/// How a World communicates. Sizes, timeout, registration, separate_reductions, compare_calls, sums and survivable
/// must be the same on every rank.
struct Options {
    /// The user's streams, which must outlive the World; null: the World makes its own. Default streams are refused.
    cudaStream_t compute = nullptr;
    cudaStream_t communication = nullptr;

    /// The rank's GPU; -1: the one that is selected when the World is made.
    int device = -1;

    /// The longest time that a rank waits for its peers: to connect, to take part in a call, and, whenever the host
    /// waits for a stream, for the stream's work, including the user's own. It counts while no event between the
    /// streams happens, so that much work is no failure. It also counts while the host does not wait, or is blocked
    /// in a launch, and a verb is under way. Context::deadline sets another time for a phase.
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

    /// The smallest and largest number of CTAs, and thereby SMs, that NCCL uses for a collective. More CTAs move more
    /// bytes per second, and leave less of the GPU to other kernels. 0: NCCL decides, but where reductions are
    /// separate the largest number is just below a quarter of the GPU's SMs, so that both communicators together take
    /// less than half of them.
    int min_ctas = 0;
    int max_ctas = 0;
    /// The number of CTAs for NVLink SHARP; 0: NCCL decides. Needs NCCL 2.27.
    int nvls_ctas = 0;
    /// What NCCL's collectives save.
    CtaPolicy cta_policy = CtaPolicy::by_default;
    /// How verbs are captured in CUDA graphs.
    GraphUsage graph_usage = GraphUsage::by_default;

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

}  // namespace shardkit::nccl SHARDKIT_BUILD

namespace shardkit::nccl::detail {

/// The smallest staging memory per rank, so that pieces are aligned.
inline constexpr std::size_t staging_bytes_per_rank = 1024;

/// Returns whether a World of that many ranks has a stream of its own for reductions.
constexpr bool separates_reductions(const Options& options, std::size_t ranks) noexcept {
    return options.separate_reductions && !options.split_share && ranks > 1;
}
/// Returns the size of the staging memory of each stream with verbs.
constexpr std::size_t staging_size(const Options& options, std::size_t ranks) noexcept {
    return std::max(options.staging_bytes, ranks * staging_bytes_per_rank);
}
/// Returns the size up to which the staging memory of reductions grows.
constexpr std::size_t most_staging(const Options& options, std::size_t ranks) noexcept {
    if (options.most_staging_bytes > 0) { return options.most_staging_bytes; }
    return std::max(std::size_t{256} << 20U, ranks * (std::size_t{4} << 20U));
}

/// What a channel of a ring takes of the GPU's memory, an estimate: the receiver's buffers for NCCL's three
/// protocols, of 4 MiB, 4,800 KiB and 512 KiB, and what the sender needs, each in units of 2 MiB. Trees, NVLink SHARP
/// and messages take more. The sizes are those of DEFAULT_BUFFSIZE and others in NCCL's init.cc and of p2pSendSetup
/// and p2pRecvSetup in p2p.cc; NCCL issue 1685 lists the allocations.
inline constexpr std::size_t channel_bytes = std::size_t{12} << 20U;
/// As many channels as a World lets a communicator have on an H100.
inline constexpr int usual_channels = 32;

/// Checks the options against each other, the loaded NCCL and its environment.
/// @throws CommError when NCCL is older than `making` needs with these options; std::invalid_argument when they
///         contradict each other, or the environment makes all communicators block
inline void require_possible(const Options& options, std::string_view making, SourceLocation where) {
    require_version(minimum_version, making, where);
    if (const char* const said = std::getenv("NCCL_COMM_BLOCKING"); said != nullptr && std::atoi(said) == 1) {
        throw_invalid_argument(
            where, "nccl: ", making, ": NCCL_COMM_BLOCKING is ", said,
            ", with which NCCL's calls wait for peers without a deadline; expected 0, or that it is "
            "not set");
    }
    require_registration(options.registration, where);
    if (options.survivable) { require_version(revoke_version, "a survivable World", where); }
    if (options.sums == Sums::by_nccl) { require_version(configured_sums_version, "Sums::by_nccl", where); }
    if (options.nvls_ctas > 0) { require_version(windows_version, "nvls_ctas", where); }
    if (options.cta_policy == CtaPolicy::efficiency) { require_version(windows_version, "cta_policy", where); }
    if (options.cta_policy == CtaPolicy::zero) { require_version(zero_cta_version, "CtaPolicy::zero", where); }
    if (options.graph_usage != GraphUsage::by_default) { require_version(graph_usage_version, "graph_usage", where); }
    if (options.survivable && options.split_share) {
        throw_invalid_argument(where,
                               "nccl::Options: split_share with survivable, but communicators that share "
                               "cannot be aborted alone");
    }
    const auto require_windows = [&](bool needed, std::string_view option, std::string_view why) {
        if (!needed || options.registration == Registration::windows) { return; }
        throw_invalid_argument(where, "nccl::Options: ", option, " with Registration::",
                               options.registration == Registration::none ? "none" : "buffers", ", but NCCL ", why,
                               " windows; expected Registration::windows");
    };
    require_windows(options.cta_policy == CtaPolicy::zero, "CtaPolicy::zero", "gathers by copy engines only into");
    require_windows(options.sums == Sums::by_nccl, "Sums::by_nccl", "adds 16-bit elements in fp32 only out of");
}

/// MAXCHANNELS in NCCL's device.h. parseCommConfig refuses a minimum without a maximum.
inline constexpr int most_ctas = 64;

/// Returns NCCL's configuration for each communicator that a World makes. It does not block, even if it is made from
/// one that does, so that the wait for peers can end. Other settings are NCCL's defaults, unless the options set
/// them.
inline ncclConfig_t config_of(const Options& options) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (options.min_ctas > 0) { config.minCTAs = options.min_ctas; }
    if (options.min_ctas > 0 || options.max_ctas > 0) {
        config.maxCTAs = options.max_ctas > 0 ? options.max_ctas : most_ctas;
    }
    config.splitShare = options.split_share ? 1 : 0;
#if NCCL_VERSION_CODE >= 22703
    if (options.name != nullptr) { config.commName = options.name; }
    if (options.nvls_ctas > 0) { config.nvlsCTAs = options.nvls_ctas; }
    // NCCL_CTA_POLICY_EFFICIENCY and, from 2.28 on, NCCL_CTA_POLICY_ZERO, which are the enumerators' values.
    if (options.cta_policy != CtaPolicy::by_default) { config.CTAPolicy = static_cast<int>(options.cta_policy); }
#endif
#if NCCL_VERSION_CODE >= 23102
    config.launchOrderImplicit = 1;  // the user's environment variable has the last word
#endif
#if NCCL_VERSION_CODE >= 22900
    if (options.graph_usage != GraphUsage::by_default) {
        config.graphUsageMode = options.graph_usage == GraphUsage::one ? 1 : 0;
    }
#endif
    return config;
}

}  // namespace shardkit::nccl::detail

namespace shardkit::nccl {

/// Returns what plans need to know of Worlds with these options and that many ranks: planner::PlanOptions::engine of
/// a plan that is made before there is a World. A plan of a model that exists takes it from there.
constexpr engine::Traits traits_of(const Options& options, std::size_t ranks) noexcept {
    engine::Traits traits = detail::usual_traits;
    traits.exchanged_sums_from = options.sums.exchange_from();
    traits.adds_16_bits = options.sums == Sums::by_nccl;
    const std::size_t each = detail::staging_size(options, ranks);
    traits.staging_bytes = each * (detail::separates_reductions(options, ranks) ? 2 : 1);
    traits.reduction_staging = each;
    traits.most_reduction_staging = ranks == 1 ? each : detail::most_staging(options, ranks);
    traits.separates_reductions = detail::separates_reductions(options, ranks);
    const int channels = options.max_ctas > 0 ? options.max_ctas : detail::usual_channels;
    traits.communicator_bytes = static_cast<std::size_t>(channels) * detail::channel_bytes;
    traits.shares_communicators = options.split_share;
    return traits;
}

}  // namespace shardkit::nccl
