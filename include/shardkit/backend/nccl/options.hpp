// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <shardkit/backend/cuda/arena.hpp>
#include <shardkit/backend/cuda/timeline.hpp>
#include <shardkit/backend/nccl/api.hpp>
#include <shardkit/backend/nccl/world_options.hpp>
#include <shardkit/comm/compare_calls.hpp>
#include <shardkit/comm/engine_traits.hpp>
#include <shardkit/core/error.hpp>

namespace shardkit::nccl {

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
/// The first NCCL with ncclCollConfig_t, for CallOptions and Sums::by_nccl.
inline constexpr int configured_calls_version = 23102;
/// The first NCCL with ncclCollConfig_t::launchCompletionEvent, for CallOptions::resident_gathers.
inline constexpr int launch_event_version = 23200;
/// The first NCCL with GraphUsage.
inline constexpr int graph_usage_version = 22900;
/// The first NCCL with ncclConfig_t::graphStreamOrdering.
inline constexpr int graph_ordering_version = 23000;

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

/// The largest chunk for a rank's own tables, which are small.
inline constexpr std::size_t local_chunk_bytes = std::size_t{2} << 20U;
/// From this size on a rank's own buffer has a chunk of its own, so that plans know what it takes.
inline constexpr std::size_t small_buffer_bytes = std::size_t{64} << 10U;

/// Of the timeline on which calls are compared, which needs none.
inline constexpr std::size_t comparison_scratch_bytes = 1;

/// Returns what a World takes of the GPU's memory whatever the model, beside staging memory: scratch of the streams
/// that verbs and kernels run on, what compares calls, and the first chunk for a rank's own tables.
constexpr std::size_t own_bytes(const Options& options, std::size_t ranks) noexcept {
    const std::size_t streams = separates_reductions(options, ranks) ? 3 : 2;
    const bool compares = ranks > 1 && options.compare_calls != CompareCalls::off;
    const std::size_t compared = compares ? comparison_scratch_bytes + ranks * shardkit::detail::trace_bytes : 0;
    return streams * gpu::TimelineOptions{}.scratch_bytes + compared + local_chunk_bytes;
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
    if (options.sums == Sums::by_nccl) { require_version(configured_calls_version, "Sums::by_nccl", where); }
    if (options.cta_policy == CtaPolicy::efficiency) { require_version(windows_version, "cta_policy", where); }
    if (options.cta_policy == CtaPolicy::zero) { require_version(zero_cta_version, "CtaPolicy::zero", where); }
    if (options.graph_usage != GraphUsage::by_default) { require_version(graph_usage_version, "graph_usage", where); }
    if (!options.graph_stream_ordering) { require_version(graph_ordering_version, "graph_stream_ordering", where); }
    const CallOptions& each = options.each_call;
    if (each != CallOptions{}) { require_version(configured_calls_version, "each_call", where); }
    if (each.resident_gathers) { require_version(launch_event_version, "each_call.resident_gathers", where); }
    if (!options.graph_stream_ordering && options.graph_usage != GraphUsage::one) {
        throw_invalid_argument(
            where,
            "nccl::Options: graph_stream_ordering off, but NCCL then takes verbs in one graph at a "
            "time alone; expected GraphUsage::one");
    }
    if (each.resident_gathers && (each.copy_engine_gathers || options.cta_policy == CtaPolicy::zero)) {
        throw_invalid_argument(
            where,
            "nccl::Options: each_call.resident_gathers with gathers by copy engines, which have no "
            "kernel that could start");
    }
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
    require_windows(each.copy_engine_gathers, "each_call.copy_engine_gathers", "gathers by copy engines only into");
    require_windows(options.sums == Sums::by_nccl, "Sums::by_nccl", "adds 16-bit elements in fp32 only out of");
}

/// MAXCHANNELS in NCCL's device.h.
inline constexpr int most_ctas = 64;

/// Returns NCCL's configuration for each communicator that a World makes. It does not block, even if it is made from
/// one that does, so that the wait for peers can end. Other settings are NCCL's defaults, unless the options set
/// them.
inline ncclConfig_t config_of(const Options& options) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (options.max_ctas > 0) { config.maxCTAs = options.max_ctas; }
    config.splitShare = options.split_share ? 1 : 0;
#if NCCL_VERSION_CODE >= 22703
    if (options.name != nullptr) { config.commName = options.name; }
    // NCCL_CTA_POLICY_EFFICIENCY and, from 2.28 on, NCCL_CTA_POLICY_ZERO, which are the enumerators' values.
    if (options.cta_policy != CtaPolicy::by_default) { config.CTAPolicy = static_cast<int>(options.cta_policy); }
#endif
#if NCCL_VERSION_CODE >= 23102
    config.launchOrderImplicit = 1;  // the user's environment variable has the last word
#endif
#if NCCL_VERSION_CODE >= 23000
    if (!options.graph_stream_ordering) { config.graphStreamOrdering = 0; }
#endif
#if NCCL_VERSION_CODE >= 22900
    if (options.graph_usage != GraphUsage::by_default) {
        config.graphUsageMode = options.graph_usage == GraphUsage::one ? 1 : 0;
    }
#endif
    return config;
}

}  // namespace detail

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
    traits.own_bytes = detail::own_bytes(options, ranks);
    traits.small_buffer_bytes = detail::small_buffer_bytes;
    traits.buffer_granularity = gpu::detail::Arena::granularity;
    const int channels = options.max_ctas > 0 ? options.max_ctas : detail::usual_channels;
    traits.communicator_bytes = static_cast<std::size_t>(channels) * detail::channel_bytes;
    traits.shares_communicators = options.split_share;
    return traits;
}

}  // namespace shardkit::nccl
