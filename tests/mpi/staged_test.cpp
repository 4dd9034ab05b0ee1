// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include "unit/backend/verb_suite.hpp"
#include "with_world.hpp"

namespace staged_test {

namespace {

using namespace shardkit;
using namespace verb_suite;
using namespace mpi_test;

/// MPI adds in an order of its own: the result is within the rounding errors of any order.
template <class In, class Out>
bool close(Out given, std::size_t ranks, std::size_t index) {
    using A = Arithmetic<Out>;
    double exact = 0;
    double magnitude = 0;
    for (std::size_t q = 0; q < ranks; ++q) {
        const auto term = static_cast<double>(static_cast<A>(static_cast<Arithmetic<In>>(value<In>(q, index))));
        exact += term;
        magnitude += std::abs(term);
    }
    const double roundings = std::ldexp(static_cast<double>(ranks) * magnitude, sizeof(A) == 8 ? -53 : -24);
    // To 8 bits as bf16; to 11 as fp16, whose smallest numbers lie 2^-24 apart.
    const double last = std::is_same_v<Out, A> ? 0
                        : std::is_same_v<Out, bf16>
                            ? std::ldexp(std::abs(exact) + roundings, -8)
                            : std::ldexp(std::abs(exact) + roundings, -11) + std::ldexp(1, -25);
    return std::abs(static_cast<double>(static_cast<A>(given)) - exact) <= roundings + last;
}

template <class In, class Out, class C>
void sums(const C& comm, std::size_t k) {
    const std::size_t n = comm.size();
    Guarded<In> full = input<In>(comm.rank(), n * k, 1);
    Guarded<Out> shard(k, 3);
    Guarded<Out> everything(n * k, 1);
    reduce_scatter(comm, ReduceOp::sum, full.view(), shard.span(), {});
    all_reduce(comm, ReduceOp::sum, full.view(), everything.span(), {});
    for (std::size_t i = 0; i < k; ++i) {
        expect(close<In, Out>(shard[i], n, comm.rank() * k + i), "reduce_scatter of ", k, ", element ", i);
    }
    for (std::size_t i = 0; i < n * k; ++i) {
        expect(close<In, Out>(everything[i], n, i), "all_reduce of ", n * k, ", element ", i);
        expect(same_bits(full[i], value<In>(comm.rank(), i)), "the input is left alone");
    }
    if constexpr (std::is_same_v<In, Out>) {
        Guarded<In> in_place = input<In>(comm.rank(), n * k, 2);
        reduce_scatter_in_place(comm, ReduceOp::sum, in_place.span(), {});
        for (std::size_t i = 0; i < n * k; ++i) {
            const bool mine = i >= comm.rank() * k && i < (comm.rank() + 1) * k;
            expect(mine ? close<In, In>(in_place[i], n, i) : same_bits(in_place[i], value<In>(comm.rank(), i)),
                   "reduce_scatter_in_place of ", k, ", element ", i);
        }
        all_reduce_in_place(comm, ReduceOp::sum, full.span(), {});
        for (std::size_t i = 0; i < n * k; ++i) {
            expect(close<In, In>(full[i], n, i), "all_reduce_in_place of ", n * k, ", element ", i);
        }
        expect(in_place.margins_intact() && full.margins_intact(), "in place stays inside its span");
    }
    expect(shard.margins_intact() && everything.margins_intact(), "sums stay inside their spans");
}

}  // namespace

TEST_CASE("mpi staged: MPI's own sums are those of the ranks within their rounding, 16-bit ones widened") {
    for (mpi::Options options : ways) {
        options.sums = mpi::Sums::by_mpi;
        CAPTURE(options.staging_bytes);
        with_world(options, [](const auto& world) {
            for (const std::size_t k : {0U, 1U, 3U, 1201U}) {
                CHECK_NOTHROW(sums<float, float>(world, k));
                CHECK_NOTHROW(sums<double, double>(world, k));
                CHECK_NOTHROW(sums<bf16, float>(world, k));
                CHECK_NOTHROW(sums<bf16, bf16>(world, k));
                CHECK_NOTHROW(sums<fp16, float>(world, k));
                CHECK_NOTHROW(sums<fp16, fp16>(world, k));
                CHECK_NOTHROW(sums<float, double>(world, k));
            }
            CHECK_NOTHROW(sixteen_bit_sums_are_rounded_once(world));
        });
    }
}

TEST_CASE("mpi staged: integers, maxima and minima are exact, whoever reduces them") {
    with_world({.sums = mpi::Sums::by_mpi}, [](const auto& world) {
        CHECK_NOTHROW(unsigned_words(world));
        CHECK_NOTHROW(reductions<std::int64_t, std::int64_t>(world));
        for (const ReduceOp op : {ReduceOp::max, ReduceOp::min}) {
            Guarded<float> values = input<float>(world.rank(), 5000, 1);
            all_reduce_in_place(world, op, values.span(), {});
            for (std::size_t i = 0; i < 5000; ++i) {
                CHECK(same_bits(values[i], reduced<float, float>(op, world.size(), i)));
            }
        }
    });
}

TEST_CASE("mpi staged: sums are counted at the width at which they travel") {
    with_world({.sums = mpi::Sums::by_mpi}, [](const auto& world) {
        const std::uint64_t n = world.size();
        std::vector<bf16> full(1000 * n);
        std::vector<float> shard(1000);
        world.traffic().clear();
        reduce_scatter(world, ReduceOp::sum, std::span<const bf16>(full), std::span<float>(shard), {});
        CHECK(world.traffic().total(Verb::reduce_scatter).moved.value == (n - 1) * 1000 * 4);
    });
}

}  // namespace staged_test
