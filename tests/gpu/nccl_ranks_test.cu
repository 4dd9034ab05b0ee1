// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <vector>

#include <cuda_runtime_api.h>

#include <shardkit/backend/cuda/error.hpp>
#include <shardkit/backend/nccl/run.hpp>
#include <shardkit/backend/nccl/world.hpp>
#include <shardkit/backend/threads/run.hpp>
#include <shardkit/shardkit.hpp>

#include "../unit/backend/nccl/captured_step.hpp"
#include "../unit/backend/nccl/step_trainer.hpp"
#include "../unit/backend/rank_checks.hpp"
#include "closed_forms.hpp"
#include "rank_processes.hpp"

namespace sk = shardkit;
using rank_processes::Kernels;
using rank_processes::Mesh;
using rank_processes::on_ranks;
using rank_processes::Place;
using step_trainer::Outcome;
using step_trainer::Settings;

namespace {

template <class T, class Policy>
Outcome on_threads(const Place& place, const Settings& settings, std::string_view plan) {
    std::vector<Outcome> outcomes(place.ranks);
    sk::threads::run(Mesh(place.ranks, 1, 1), [&](auto& rank) {
        outcomes[rank.rank()] =
            step_trainer::follow<T>(rank, sk::DynamicPolicy(Policy{}), settings, plan, step_trainer::Repeat{});
    });
    return outcomes[place.rank];
}

void check_close(const std::vector<double>& given, const std::vector<double>& expected, double bound) {
    REQUIRE(given.size() == expected.size());
    std::size_t outside = 0;
    for (std::size_t i = 0; i < given.size(); ++i) {
        const double scale = std::max(std::abs(expected[i]), 0.1);
        outside += std::abs(given[i] - expected[i]) <= bound * scale ? 0U : 1U;
    }
    CHECK(outside == 0);
}

template <class T, class Policy>
void check_training(const Place& place, sk::nccl::World& world, double bound) {
    CAPTURE(Policy::name);
    const Settings settings{.microbatches = 2, .learning_rate = 0.01};
    const std::string_view plan = "eCeLLeL";
    const auto run = [&](const auto& capture) {
        sk::MeshRank<Mesh> rank(Mesh(place.ranks, 1, 1), sk::Communicator(world), {}, world.streams());
        return step_trainer::follow<T>(rank, sk::DynamicPolicy(Policy{}), settings, plan, capture);
    };
    const Outcome expected = on_threads<T, Policy>(place, settings, plan);
    const Outcome plain = run(step_trainer::Repeat{});
    check_close(plain.parameters, expected.parameters, bound);
    check_close(plain.log, expected.log, bound);
    const Outcome with_graphs =
        run([&](const auto& step) { return step_trainer::CapturedStep(world.streams(), step); });
    check_close(with_graphs.parameters, expected.parameters, bound);
    check_close(with_graphs.log, expected.log, bound);
}

template <class T>
void check_policies(const Place& place, sk::nccl::World& world, double bound) {
    check_training<T, sk::NoShard>(place, world, bound);
    check_training<T, sk::ShardOptimizer>(place, world, bound);
    check_training<T, sk::ShardGradOp>(place, world, bound);
    check_training<T, sk::FullShard>(place, world, bound);
    if (place.ranks % 2 == 0) { check_training<T, sk::HybridShard<2>>(place, world, bound); }
}

/// Not whole, so that another order of a sum shows.
float addend(std::size_t rank, std::size_t i) {
    return 1.0F / static_cast<float>(1 + (i * 7919 + rank * 104'729) % 1'000'003);
}
#ifdef SHARDKIT_TEST_ON_STANDIN
constexpr std::size_t most_elements = 100'003;
#else
constexpr std::size_t most_elements = 10'000'019;
#endif
/// FNV-1a over the elements' bits.
std::uint64_t hash_of(const std::vector<float>& values) {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (const float value : values) { hash = (hash ^ std::bit_cast<std::uint32_t>(value)) * 0x100000001b3; }
    return hash;
}

}  // namespace

RANK_CASE("verbs") {
    sk::nccl::World world(place.id, place.ranks, place.rank, place.options());
    const sk::Communicator comm(world);
    closed_forms::check_verbs<double, Kernels>(comm);
    closed_forms::check_verbs<float, Kernels>(comm);
    closed_forms::check_verbs<sk::bf16, Kernels>(comm);
    closed_forms::check_verbs<std::uint64_t, Kernels>(comm);
    world.finish();
}

RANK_CASE("training") {
    sk::nccl::World world(place.id, place.ranks, place.rank, place.options());
    check_policies<double>(place, world, 1e-12);
    check_policies<float>(place, world, 1e-5);
    world.finish();
}

#ifndef SHARDKIT_TEST_ON_STANDIN  // which takes no memory of its own
RANK_CASE("memory") {
    sk::gpu::detail::check(cudaSetDevice(place.options().device), "cudaSetDevice");
    sk::gpu::detail::check(cudaFree(nullptr), "cudaFree");  // makes CUDA's context
    // Of all ranks on this GPU, which stand still meanwhile.
    const auto mebibytes_taken = [] {
        constexpr std::chrono::milliseconds others_get_here(500);
        std::this_thread::sleep_for(others_get_here);
        std::size_t left = 0;
        std::size_t all = 0;
        sk::gpu::detail::check(cudaMemGetInfo(&left, &all), "cudaMemGetInfo");
        std::this_thread::sleep_for(others_get_here);
        return static_cast<double>(all - left) / (1U << 20U);
    };
    std::vector<double> taken{mebibytes_taken()};
    sk::nccl::World world(place.id, place.ranks, place.rank, place.options());
    taken.push_back(mebibytes_taken());
    const sk::Communicator comm(world);
    const auto values = world.communicator().buffer<float>(1000);
    sk::all_reduce_in_place(comm, sk::ReduceOp::sum, values.span(), world.streams().communication);
    world.streams().communication.synchronize();
    taken.push_back(mebibytes_taken());
    sk::MeshRank<Mesh> rank(Mesh(place.ranks, 1, 1), comm, {}, world.streams());
    step_trainer::Trainer<float, decltype(rank)> trainer(rank, sk::DynamicPolicy(sk::FullShard{}),
                                                         Settings{.microbatches = 2});
    taken.push_back(mebibytes_taken());
    const auto steps = [&](int count) {
        for (int step = 0; step < count; ++step) { trainer.step(); }
        static_cast<void>(trainer.outcome());
        taken.push_back(mebibytes_taken());
    };
    steps(1);
    steps(10);
    CHECK(taken[5] == taken[4]);  // what NCCL takes at a first verb of a kind it takes once
    if (place.rank == 0) {
        const std::size_t sharing = (place.ranks + static_cast<std::size_t>(sk::gpu::detail::device_count()) - 1) /
                                    static_cast<std::size_t>(sk::gpu::detail::device_count());
        std::printf(
            "measured: MiB of a GPU with %zu of %zu ranks: World %.0f, first verb %.0f, containers %.0f, first step "
            "%.0f, ten more %.0f; of NCCL's communicators, as it says, %.0f\n",
            sharing, place.ranks, taken[1] - taken[0], taken[2] - taken[1], taken[3] - taken[2], taken[4] - taken[3],
            taken[5] - taken[4],
            static_cast<double>(world.communicator_memory().value_or(sk::ByteCount{0}).value) / (1U << 20U));
        std::fflush(stdout);
    }
    world.finish();
}
#endif

RANK_CASE("the same bits") {
    sk::nccl::World world(place.id, place.ranks, place.rank, place.options());
    const sk::Communicator comm(world);
    const shardkit::gpu::TimelineRef stream(world.streams().communication);
    constexpr std::array<std::size_t, 5> sizes{1, 1000, 100'003, 1U << 22U, 10'000'019};
    std::size_t same = 0;
    for (const std::size_t size : sizes) {
        if (size > most_elements) { continue; }
        CAPTURE(size);
        auto values = world.communicator().buffer<float>(size);
        auto hashes = world.communicator().buffer<std::uint64_t>(2);
        std::vector<float> host(size);
        for (std::size_t i = 0; i < size; ++i) { host[i] = addend(place.rank, i); }
        Kernels::copy_in(stream, std::span<const float>(host), values.span());
        sk::all_reduce_in_place(comm, sk::ReduceOp::sum, values.span(), stream);
        Kernels::copy_out(stream, std::span<const float>(values.span()), std::span(host));
        std::size_t outside = 0;
        for (std::size_t i = 0; i < size; ++i) {
            double sum = 0;
            for (std::size_t rank = 0; rank < place.ranks; ++rank) { sum += static_cast<double>(addend(rank, i)); }
            outside += std::abs(static_cast<double>(host[i]) - sum) <= 1e-6 * sum ? 0U : 1U;
        }
        CHECK(outside == 0);

        const std::uint64_t own = hash_of(host);
        std::array<std::uint64_t, 2> of_all{own, own};
        Kernels::copy_in(stream, std::span<const std::uint64_t>(of_all), hashes.span());
        sk::all_reduce_in_place(comm, sk::ReduceOp::min, hashes.span().first(1), stream);
        sk::all_reduce_in_place(comm, sk::ReduceOp::max, hashes.span().last(1), stream);
        Kernels::copy_out(stream, std::span<const std::uint64_t>(hashes.span()), std::span<std::uint64_t>(of_all));
        CHECK((of_all[0] <= own && own <= of_all[1]));
        same += of_all[0] == of_all[1] ? 1U : 0U;
    }
    if (place.rank == 0) {
        std::printf("measured: sums of %zu ranks, NVLS %s: the same bits on all ranks at %zu of %zu sizes\n",
                    place.ranks, rank_processes::variable("NCCL_NVLS_ENABLE").c_str(), same, sizes.size());
        std::fflush(stdout);
    }
    world.finish();
}

/// Sums of T as the World makes them, against sums in fp64 that are rounded once to T: at most one unit in the last
/// place apart, and no further where they are wanted in fp32. Returns how many of the elements are equal.
template <class T>
std::size_t equal_sums(const Place& place, sk::nccl::World& world, std::size_t each) {
    const sk::Communicator comm(world);
    const shardkit::gpu::TimelineRef stream(world.streams().communication);
    const std::size_t size = each * place.ranks;
    auto addends = world.communicator().buffer<T>(size);
    auto scattered = world.communicator().buffer<float>(each);
    const auto part = [](std::size_t rank, std::size_t i) {
        return T((i % 3 == rank % 2 ? -1.0F : 1.0F) * addend(rank, i));
    };
    std::vector<T> host(size);
    for (std::size_t i = 0; i < size; ++i) { host[i] = part(place.rank, i); }
    Kernels::copy_in(stream, std::span<const T>(host), addends.span());
    sk::reduce_scatter(comm, sk::ReduceOp::sum, std::span<const T>(addends.span()), scattered.span(), stream);
    sk::all_reduce_in_place(comm, sk::ReduceOp::sum, addends.span(), stream);
    std::vector<float> own(each);
    Kernels::copy_out(stream, std::span<const float>(scattered.span()), std::span(own));
    Kernels::copy_out(stream, std::span<const T>(addends.span()), std::span(host));
    std::size_t equal = 0;
    std::size_t outside = 0;
    const auto compare = [&](std::size_t i, double given) {
        double sum = 0;
        for (std::size_t rank = 0; rank < place.ranks; ++rank) {
            sum += static_cast<double>(static_cast<float>(part(rank, i)));
        }
        const auto rounded = static_cast<double>(static_cast<float>(T(static_cast<float>(sum))));
        constexpr int fraction_bits = std::is_same_v<T, sk::bf16> ? 7 : 10;
        const double unit =
            std::ldexp(1.0, std::max(std::ilogb(std::max(std::abs(rounded), 0x1p-14)), -14) - fraction_bits);
        equal += given == rounded ? 1U : 0U;
        outside += std::abs(given - rounded) <= unit ? 0U : 1U;
    };
    for (std::size_t i = 0; i < size; ++i) { compare(i, static_cast<double>(static_cast<float>(host[i]))); }
    for (std::size_t i = 0; i < each; ++i) { compare(place.rank * each + i, static_cast<double>(own[i])); }
    CHECK(outside == 0);
    return equal;
}

RANK_CASE("sums of 16 bits") {
    sk::nccl::Options options = place.options();
    options.registration = sk::nccl::Registration::windows;
    options.sums = sk::nccl::Sums::by_nccl;
    sk::nccl::World world(place.id, place.ranks, place.rank, options);
    const bool by_nccl = sk::Communicator(world).traits().adds_16_bits;
    std::size_t equal = 0;
    std::size_t all = 0;
    for (const std::size_t each : {std::size_t{1}, std::size_t{1000}, std::size_t{100'003}, std::size_t{1} << 20U}) {
        if (each > most_elements) { continue; }
        CAPTURE(each);
        equal += equal_sums<sk::bf16>(place, world, each) + equal_sums<sk::fp16>(place, world, each);
        all += 2 * each * (place.ranks + 1);
    }
    if (by_nccl) { CHECK(equal > all / 2); }  // a rounding at every addition would leave few
    if (place.rank == 0) {
        std::printf("measured: 16-bit sums of %zu ranks %s: %zu of %zu are those of fp64, rounded once\n",
                    place.ranks, by_nccl ? "by NCCL" : "as fp32, which NCCL refused", equal, all);
        std::fflush(stdout);
    }
    world.finish();
}

RANK_CASE("failure") {
    const bool fails = place.rank + 1 == place.ranks;
    sk::nccl::World world(place.id, place.ranks, place.rank, place.options());
    const auto run = [&] {
        sk::nccl::run(Mesh(place.ranks, 1, 1), world, [&](auto& rank) {
            step_trainer::Trainer<float, std::remove_reference_t<decltype(rank)>> trainer(
                rank, sk::DynamicPolicy(sk::FullShard{}), Settings{.microbatches = 2});
            trainer.step();
            if (fails) { throw rank_checks::Planted("planted"); }
            const auto waits = rank_processes::short_deadline(world);
            trainer.step();
            static_cast<void>(trainer.outcome());
        });
    };
    const auto took = rank_checks::duration_of([&] {
        if (fails) {
            CHECK_THROWS_AS(run(), rank_checks::Planted);
        } else {
            CHECK_THROWS_AS(run(), sk::CommError);
        }
    });
    CHECK(took < rank_processes::time_for_the_dead + std::chrono::seconds(15));
}

TEST_CASE("every verb gives its closed form on several ranks") { on_ranks("verbs"); }

TEST_CASE("training on several ranks, plain and in graphs, is training on the host's threads") {
    on_ranks("training");
}

TEST_CASE(
    "all-reduced values are right on every rank; whether they are the same bits is printed, with NVLS and without") {
    constexpr const char* nvls = "NCCL_NVLS_ENABLE";
    const std::string before = rank_processes::variable(nvls);
    REQUIRE(setenv(nvls, "0", 1) == 0);
    on_ranks("the same bits");
    if (const auto gpus = static_cast<std::size_t>(sk::gpu::detail::device_count());
        gpus > 1 && gpus <= rank_processes::most_ranks) {  // one for each rank
        REQUIRE(setenv(nvls, "1", 1) == 0);
        on_ranks("the same bits", {gpus});
    }
    REQUIRE((before.empty() ? unsetenv(nvls) : setenv(nvls, before.c_str(), 1)) == 0);
}

TEST_CASE("16-bit sums by NCCL are those of fp64, rounded once, to the last place") {
#ifdef SHARDKIT_TEST_ON_STANDIN
    standin::set_nccl_version(sk::nccl::configured_calls_version);
#endif
    constexpr const char* needs = "16-bit sums by NCCL need ";
    if (NCCL_VERSION_CODE < sk::nccl::configured_calls_version ||
        sk::nccl::library_version() < sk::nccl::configured_calls_version) {
        return skip(needs + sk::nccl::version_text(sk::nccl::configured_calls_version) + " of it");
    }
    if (rank_processes::shares(2)) { return skip(std::string(needs) + "a GPU for each rank, for its windows"); }
    on_ranks("sums of 16 bits");
#ifdef SHARDKIT_TEST_ON_STANDIN
    standin::set_nccl_version(standin::usual_nccl_version);
#endif
}

#ifndef SHARDKIT_TEST_ON_STANDIN
TEST_CASE("memory that NCCL takes at a first verb and a first step stays as it is") { on_ranks("memory", {2U}); }
#endif

TEST_CASE("a rank that throws ends the others with an error, in time") { on_ranks("failure"); }
