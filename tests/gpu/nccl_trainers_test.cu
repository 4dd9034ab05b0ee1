// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <vector>

#include <cublas_v2.h>

#include <shardkit/backend/cuda/cublas_products.hpp>
#include <shardkit/backend/nccl/options.hpp>
#include <shardkit/backend/nccl/world.hpp>
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/core/codes.hpp>
#include <shardkit/muon.hpp>
#include <shardkit/shardkit.hpp>

#include "../unit/backend/nccl/step_trainer.hpp"
#include "../unit/optim/muon_training.hpp"
#include "../unit/sharded/coded_training.hpp"
#include "preload.hpp"
#include "rank_processes.hpp"

// What trainers on several ranks may ask for besides, to the bit: sums are exchanged, so that they are added in rank
// order, as threads add them.

namespace sk = shardkit;
using rank_processes::Kernels;
using rank_processes::Mesh;
using rank_processes::on_ranks;
using rank_processes::Place;
using step_trainer::Outcome;
using step_trainer::Settings;

namespace {

const std::array<sk::DynamicPolicy, 3> policies{
    sk::DynamicPolicy(sk::NoShard{}), sk::DynamicPolicy(sk::ShardGradOp{}), sk::DynamicPolicy(sk::FullShard{})};

/// f(rank) in a World whose sums are exchanged, with all kernels loaded before.
template <class F>
void with_rank(const Place& place, const F& f) {
    sk::nccl::Options options = place.options();
    options.sums = sk::nccl::Sums::exchanged;
    sk::nccl::World world(place.id, place.ranks, place.rank, options);
    preload_trainers();
    {
        sk::MeshRank<Mesh> rank(Mesh(place.ranks, 1, 1), sk::Communicator(world), {}, world.streams());
        f(rank);
    }
    world.finish();
}

/// Trains as `settings` say, and expects what threads train that know nothing of it.
template <class T>
void check_bits(const Place& place, const Settings& settings) {
    Settings plain = settings;
    plain.offload = sk::Offload::none;
    plain.releases = false;
    with_rank(place, [&](auto& rank) {
        for (const sk::DynamicPolicy& policy : policies) {
            CAPTURE(std::string(policy.name()));
            std::vector<Outcome> expected(place.ranks);
            sk::threads::run(Mesh(place.ranks, 1, 1), [&](auto& thread) {
                expected[thread.rank()] =
                    step_trainer::follow<T>(thread, policy, plain, "eeee", step_trainer::Repeat{});
            });
            const Outcome made = step_trainer::follow<T>(rank, policy, settings, "eeee", step_trainer::Repeat{});
            CHECK(step_trainer::same(made, expected[place.rank]));
        }
    });
}

/// A work of a trainer, as a kernel.
constexpr auto submit = [](const auto& stream, const auto& work) { Kernels::run_once(stream, work); };

template <class Code>
void check_codes(const Place& place) {
    const std::vector<float> expected = coded_training::expected<Code>();
    with_rank(place, [&](auto& rank) {
        for (const sk::DynamicPolicy& policy : policies) {
            CAPTURE(std::string(policy.name()));
            CHECK(coded_training::train<Code>(rank, policy, submit) == expected);
        }
    });
}

/// Muon on this rank's GPU is that of one thread, but for what cuBLAS makes of products.
void check_muon(const Place& place, sk::gpu::Factors factors, double allowed) {
    const std::vector<float> expected = muon_training::expected();
    with_rank(place, [&](auto& rank) {
        cublasHandle_t handle = nullptr;
        REQUIRE(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS);
        REQUIRE(cublasSetStream(handle, rank.compute_stream().native()) == CUBLAS_STATUS_SUCCESS);
        for (const sk::DynamicPolicy& policy : policies) {
            CAPTURE(std::string(policy.name()));
            const std::vector<float> made =
                muon_training::train(rank, policy, sk::gpu::CublasProducts{handle, factors}, submit);
            REQUIRE(made.size() == expected.size());
            std::size_t apart = 0;
            for (std::size_t i = 0; i < made.size(); ++i) {
                const double difference = static_cast<double>(made[i]) - static_cast<double>(expected[i]);
                apart += std::abs(difference) <= allowed ? 0U : 1U;
            }
            CHECK(apart == 0);
        }
        CHECK(cublasDestroy(handle) == CUBLAS_STATUS_SUCCESS);
    });
}

}  // namespace

RANK_CASE("Muon") {
    check_muon(place, sk::gpu::Factors::as_stored, 1e-5);
    // Three steps of at most 0.1 along directions whose products are rounded to 8 bits, in each of 15 products.
    check_muon(place, sk::gpu::Factors::in_bf16, 0.03);
}
RANK_CASE("exchanged sums") {
    check_bits<float>(place, {.microbatches = 2});
    check_bits<sk::bf16>(place, {.microbatches = 2});
}
RANK_CASE("offloaded states") {
    check_bits<float>(place, {.offload = sk::Offload::states});
    check_bits<sk::bf16>(place, {.offload = sk::Offload::states});
}
RANK_CASE("offloaded updates") {
    check_bits<float>(place, {.offload = sk::Offload::update});
    check_bits<sk::bf16>(place, {.offload = sk::Offload::update});
}
RANK_CASE("updates in backward") {
    check_bits<float>(place, {.clips = false, .releases = true});
    check_bits<sk::bf16>(place, {.clips = false, .releases = true});
}
RANK_CASE("gathers of codes") {
    check_codes<sk::e4m3>(place);
    check_codes<sk::block_int8>(place);
}

TEST_CASE("exchanged sums are those of threads to the bit") { on_ranks("exchanged sums", {2U, 3U}); }
TEST_CASE("states on the host change no bit") { on_ranks("offloaded states", {2U}); }
TEST_CASE("updates on the host change no bit") { on_ranks("offloaded updates", {2U}); }
TEST_CASE("updates within the backward pass change no bit") { on_ranks("updates in backward", {2U}); }
TEST_CASE("gathers of codes have the bits of one rank") { on_ranks("gathers of codes", {2U, 3U}); }
TEST_CASE("Muon's steps are those of one thread, but for the rounding of products") { on_ranks("Muon", {2U, 3U}); }
