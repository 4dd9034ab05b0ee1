// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/mpi/run.hpp>
#include <shardkit/mesh/device_mesh.hpp>
#include <shardkit/policy/policies.hpp>

#include "unit/sharded/one_rank_cases.hpp"
#include "unit/sharded/oracle_checks.hpp"
#include "with_world.hpp"

namespace training_test {

namespace {

namespace sk = shardkit;

/// This process's result of the training on dp x cp.
template <class Precision, class Policy>
toy::RankResult train(toy::Mesh mesh, Policy policy, const toy::Training& training, const sk::mpi::Options& options) {
    std::optional<toy::RankResult> result;
    sk::mpi::run(
        mesh, [&](auto& rank) { result = toy::train_rank<Precision>(rank, policy, training); }, {},
        mpi_test::patient(options));
    return std::move(*result);
}

template <class Policy>
void check(Policy policy, const sk::mpi::Options& options) {
    CAPTURE(Policy::name);
    CAPTURE(options.overlap);
    const std::size_t n = sk::mpi::Environment::size();
    std::vector<toy::Extents> meshes{{n, 1, 1}};
    if (n % 2 == 0) { meshes.push_back({n / 2, 1, 2}); }
    for (const toy::Extents e : meshes) {
        for (toy::Training training : toy::trainings(3)) {
            training.steps = 2;
            const auto mine = train<sk::Precision<double>>(toy::Mesh(e.dp, e.tp, e.cp), policy, training, options);
            CHECK(toy::distance(mine, toy::oracle(training, n)) <= 1e-12);
        }
    }
}
void check_policies(const sk::mpi::Options& options) {
    check(sk::NoShard{}, options);
    check(sk::ShardOptimizer{}, options);
    check(sk::ShardGradOp{}, options);
    check(sk::FullShard{}, options);
    check(sk::HybridShard<1>{}, options);
    check(sk::HybridOptimizer<1>{}, options);
    check(sk::SecondaryShard<1>{}, options);
}

/// The same bits as the threads engine gives, on every rank.
template <class Precision, class Policy>
void check_bits(Policy policy, const sk::mpi::Options& options) {
    CAPTURE(Policy::name);
    const std::size_t n = sk::mpi::Environment::size();
    const toy::Mesh mesh(n, 1, 1);
    const toy::Training training{
        .samples = 40, .microbatches = 3, .rule = toy::Rule::adamw, .learning_rate = 0.01, .clip = 1};
    const auto expected = toy::train<Precision>(mesh, policy, training);
    const auto mine = train<Precision>(mesh, policy, training, options);
    CHECK(toy::same_bits(mine, expected[sk::mpi::Environment::rank()]));
}
template <class Precision>
void check_bits(const sk::mpi::Options& options) {
    check_bits<Precision>(sk::NoShard{}, options);
    check_bits<Precision>(sk::ShardOptimizer{}, options);
    check_bits<Precision>(sk::ShardGradOp{}, options);
    check_bits<Precision>(sk::FullShard{}, options);
}

}  // namespace

TEST_CASE("mpi: every policy trains as one rank does, in fp64 to 1e-12") {
    SUBCASE("exchange") { check_policies({}); }
    SUBCASE("exchange, overlapped") { check_policies({.overlap = true}); }
    SUBCASE("staged") { check_policies({.sums = sk::mpi::Sums::by_mpi}); }
}

TEST_CASE("mpi: training by exchange gives the bits of the threads engine, overlapped or not") {
    for (const bool overlap : {false, true}) {
        check_bits<sk::Precision<float>>({.overlap = overlap});
        check_bits<sk::Precision<sk::bf16>>({.overlap = overlap});
    }
}

TEST_CASE("mpi: a mesh of another size than the job is refused on every rank, and the job goes on") {
    const std::size_t n = sk::mpi::Environment::size();
    CHECK_THROWS_WITH_AS(sk::mpi::run(toy::Mesh(n + 1, 1, 1), [](auto&) {}),
                         doctest::Contains("start it with mpirun -n"), std::invalid_argument);
    CHECK_NOTHROW(sk::mpi::run(toy::Mesh(n, 1, 1), [](auto&) {}));
}

/// A trainer's own function of that name.
template <class Rank>
std::size_t run(Rank& rank, const std::size_t& times) {
    return rank.world_size() * times;
}

TEST_CASE("mpi: a trainer's own run(rank, ...) is not taken for the engine's, which the rank's type brings") {
    const std::size_t n = sk::mpi::Environment::size();
    std::size_t times = 3;  // not const: the engine's would take it as it is
    sk::mpi::run(toy::Mesh(n, 1, 1), [&](auto& rank) { CHECK(run(rank, times) == 3 * n); });
}

TEST_CASE("mpi: one rank alone works on summoned parameters, under every policy") {
    for (const bool overlap : {false, true}) {
        sk::mpi::Options options;
        options.overlap = overlap;
        sk::mpi::run(
            sk::DeviceMesh{sk::mpi::Environment::size()},
            [](auto& rank) {
                for (const auto& policy : one_rank::policies) {
                    for (const std::string& wrong : one_rank::failures(rank, policy)) { FAIL_CHECK(wrong); }
                }
            },
            {}, mpi_test::patient(options));
    }
}

}  // namespace training_test
