// SPDX-License-Identifier: Apache-2.0
// Trains on the NCCL engine over the stand-in, each stream as early and as late as it may work, and on threads: 1
// when a bit differs. Built against headers in which one wait between streams is missing.
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include <shardkit/backend/nccl/kernels_of.hpp>
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/optim/matrix_products.hpp>
#include <shardkit/policy/policies.hpp>
#include <shardkit/step/local_shards.hpp>
#include <shardkit/verify/gradient_norms.hpp>
#include <shardkit/verify/verify_replicas.hpp>

#include "unit/backend/nccl/paced_ranks.hpp"
#include "unit/backend/nccl/small_trainer_runs.hpp"
#include "unit/optim/muon_training.hpp"
#include "unit/schedule/written_between_steps.hpp"
#include "unit/sharded/coded_training.hpp"

namespace {

namespace sk = shardkit;
using small_trainer::Mesh;
using small_trainer::Training;

template <class T, class Policy>
bool fails(const Mesh& mesh, const Training& training) {
    const sk::DynamicPolicy policy(Policy{});
    const std::string difference = small_trainer::difference<T>(
        mesh, policy, training, small_trainer::on_threads<T>(mesh, policy, training), paced_ranks::some_paces());
    if (difference.empty()) { return false; }
    std::printf("%s, %zu microbatches, %zu in flight, %s\n", std::string(Policy::name).c_str(), training.microbatches,
                training.in_flight, difference.c_str());
    return true;
}

/// The buffer of a window that was begun and dropped is free, and in this checked build filled with NaN, however late
/// its gather comes.
bool dropped_window_is_not_cleared() {
    gpu_ranks::restart(standin::Pace::lazy);
    std::atomic<bool> wrong = false;
    const auto ended =
        gpu_ranks::with_world(2, gpu_ranks::patient(), [&](const gpu_ranks::Comm& comm, sk::nccl::World& world) {
            const auto streams = world.streams();
            sk::MeshRank<Mesh> rank(Mesh(2, 1, 1), comm, {.in_flight = 1}, streams);
            using Weight = small_trainer::Weight<float>;
            sk::Sharded<Weight, sk::FullShard> layer{rank, "layer"};
            const float* values = nullptr;
            {
                const auto window = layer.unshard();
                values = window[Weight{}].data();
            }
            { const auto dropped = layer.begin_unshard(); }
            streams.compute.synchronize();
            streams.communication.synchronize();
            if (!std::isnan(values[0])) { wrong = true; }
        });
    if (wrong) { std::printf("a dropped window's buffer still has values\n"); }
    return wrong || !gpu_ranks::first_error(ended).empty();
}

/// Ranks that make different groups are refused, also where the communication stream is ahead of the compute stream.
bool different_groups_are_taken() {
    gpu_ranks::restart(standin::Pace::lazy);
    std::atomic<bool> taken = false;
    const auto ended =
        gpu_ranks::with_world(2, gpu_ranks::patient(), [&](const gpu_ranks::Comm& comm, sk::nccl::World& world) {
            const auto streams = world.streams();
            standin::set_pace(streams.communication.native(), standin::Pace::eager);
            sk::MeshRank<Mesh> rank(Mesh(2, 1, 1), comm, {.in_flight = 1}, streams);
            try {
                using Layer = sk::Sharded<small_trainer::Weight<float>, sk::FullShard>;
                const Layer layer{rank, rank.rank() == 0 ? "one" : "other"};
                taken = true;
            } catch (const std::invalid_argument&) {}  // as it should be
        });
    if (taken) { std::printf("ranks made different groups, and nobody noticed\n"); }
    return taken || !gpu_ranks::first_error(ended).empty();
}

/// What is written or listed between two steps does not mix with a gather that is under way.
bool writes_do_not_wait() {
    using written_between_steps::What;
    for (const What what : {What::initialize, What::list}) {
        if (written_between_steps::is_right(sk::DynamicPolicy(sk::ShardOptimizer{}), what)) { continue; }
        std::printf("what was written or listed is mixed with what a gather brought\n");
        return true;
    }
    return false;
}

/// Reduced gradients that a program reads are there, whatever the streams still do.
bool sums_are_read_early() {
    std::atomic<bool> early = false;
    sk::threads::run(sk::DeviceMesh<2>{},
                     [&](auto& rank) {
                         using Weight = small_trainer::Weight<float>;
                         sk::Sharded<Weight, sk::ShardGradOp> layer{rank, "layer"};
                         sk::Model model{layer};
                         sk::Accumulation accumulation{model};
                         auto gradients = accumulation.gradients(layer);
                         for (float& element : gradients[Weight{}]) { element = 1; }
                         accumulation.add(std::move(gradients));
                         if (rank.rank() == 1) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }
                         const auto reduced = sk::reduce(std::move(accumulation), sk::sum);
                         const auto shard = sk::gradient_shard(reduced, layer);
                         sk::read_shards(layer, [&](const auto& run) {
                             for (const float sum : shard.of(run)) {
                                 if (sum != 2) { early = true; }
                             }
                         });
                     },
                     {}, {.overlap = sk::threads::Overlap::threads});
    if (early) { std::printf("reduced gradients were read before they were reduced\n"); }
    return early;
}

/// f(rank) on two ranks, each stream as early and as late as it may work: prints what differs or was thrown.
template <class F>
bool fails_on_ranks(const char* what, const F& is_right) {
    for (const auto paces : paced_ranks::some_paces()) {
        std::atomic<bool> right = true;
        const std::string error = paced_ranks::run(Mesh(2, 1, 1), paces, {}, [&](auto& rank, const auto&) {
            if (!is_right(rank)) { right = false; }
        });
        if (right && error.empty()) { continue; }
        std::printf("%s: %s\n", what, error.empty() ? "other numbers" : error.c_str());
        return true;
    }
    return false;
}

/// The host's products in the order of a GPU's stream.
struct LaunchedProducts {
    template <class Product>
    static void multiply(const sk::Stream& stream, const Product& product) {
        sk::HostProducts::multiply(host_functions::LaunchedStream(stream), product);
    }
    template <class Product>
    static void gram(const sk::Stream& stream, const Product& product) {
        sk::HostProducts::gram(host_functions::LaunchedStream(stream), product);
    }
};

/// Matrices that travel to their owners, and gathers of codes, have the bits of one thread.
bool other_trainers_differ() {
    const sk::DynamicPolicy policy(sk::FullShard{});
    constexpr auto matrices = sk::nccl::detail::rule_kernels<sk::DefaultPrecision<float>, sk::rules::MuonRule>();
    decltype(matrices)::In<sk::gpu::KernelLaunches>::calls();
    constexpr auto codes =
        sk::nccl::detail::rule_kernels<coded_training::Precision<sk::e4m3>, sk::rules::AdamWRule>();
    decltype(codes)::In<sk::gpu::KernelLaunches>::calls();
    const auto of_matrices = muon_training::expected();
    const auto of_codes = coded_training::expected<sk::e4m3>();
    return fails_on_ranks("matrices",
                          [&](auto& rank) {
                              return muon_training::train(rank, policy, LaunchedProducts{}, paced_ranks::submit) ==
                                     of_matrices;
                          }) ||
           fails_on_ranks("codes", [&](auto& rank) {
               return coded_training::train<sk::e4m3>(rank, policy, paced_ranks::submit) == of_codes;
           });
}

/// Norms and comparisons of replicas that follow a reduction or a gather at once are of what it brings.
bool sums_and_copies_are_compared_early() {
    using Weight = small_trainer::Weight<float>;
    const auto step = [](auto& rank, auto& layer, const sk::Model& model) {
        sk::Accumulation accumulation{model};
        auto gradients = accumulation.gradients(layer);
        float* const to = gradients[Weight{}].data();
        paced_ranks::submit(rank.compute_stream(), [to, own = static_cast<float>(rank.rank() + 1)] {
            for (std::size_t i = 0; i < small_trainer::weight_size; ++i) { to[i] = own * static_cast<float>(i); }
        });
        accumulation.add(std::move(gradients));
        return sk::reduce(std::move(accumulation), sk::sum);
    };
    return fails_on_ranks("norms",
                          [&](auto& rank) {
                              sk::Sharded<Weight, sk::FullShard> layer{rank, "layer"};
                              const auto reduced = step(rank, layer, sk::Model{layer});
                              return sk::gradient_norms(reduced).model.infinity ==
                                     3 * (small_trainer::weight_size - 1);
                          }) ||
           fails_on_ranks("replicas", [&](auto& rank) {
               sk::Sharded<Weight, sk::ShardOptimizer> layer{rank, "layer"};
               sk::Sharded<Weight, sk::NoShard> whole{rank, "whole"};
               const sk::Model model{layer};
               const sk::Model of_whole{whole};
               sk::AdamW optimizer{model, {.learning_rate = 0.25}};
               const auto reduced = step(rank, whole, of_whole);
               sk::verify_replicas(of_whole);
               optimizer.step(step(rank, layer, model));
               const auto pending = layer.begin_unshard();
               sk::verify_replicas(model);
               return true;
           });
}

}  // namespace

int main() {
    static_assert(sk::checked);
    if (sums_are_read_early() || sums_and_copies_are_compared_early() || other_trainers_differ() ||
        dropped_window_is_not_cleared() || different_groups_are_taken() || writes_do_not_wait()) {
        return 1;
    }
    const Mesh mesh(2, 1, 1);
    for (const Training& training :
         {Training{.microbatches = 3, .in_flight = 1}, Training{.microbatches = 3}, Training{.prefetch = true},
          Training{.norm = false}, Training{.abandon = true},
          Training{.microbatches = 3, .steps = 4, .abandon = true, .scheduled = true},
          Training{.microbatches = 3, .scheduled = true, .keeps = false},
          Training{.microbatches = 3, .scheduled = true, .keeps = false, .overlaps = true}}) {
        if (fails<float, sk::NoShard>(mesh, training) || fails<float, sk::ShardGradOp>(mesh, training) ||
            fails<float, sk::FullShard>(mesh, training) || fails<sk::bf16, sk::FullShard>(mesh, training)) {
            return 1;
        }
    }
}
