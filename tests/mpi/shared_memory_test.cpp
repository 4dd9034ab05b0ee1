// SPDX-License-Identifier: Apache-2.0
#include <sys/resource.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <new>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/host/copy_elements.hpp>
#include <shardkit/backend/mpi/environment.hpp>
#include <shardkit/memory/host_buffer.hpp>
#include <shardkit/verbs/all_gather.hpp>
#include <shardkit/verbs/all_reduce.hpp>
#include <shardkit/verbs/all_to_all.hpp>
#include <shardkit/verbs/barrier.hpp>
#include <shardkit/verbs/broadcast.hpp>
#include <shardkit/verbs/reduce_scatter.hpp>
#include <shardkit/verbs/send_receive.hpp>
#include <shardkit/verbs/split.hpp>

#include "interposed.hpp"
#include "unit/backend/verb_suite.hpp"
#include "with_world.hpp"

namespace shared_memory_test {

namespace {

using namespace shardkit;
using namespace verb_suite;
using namespace mpi_test;
using Comm = shardkit::Communicator;

/// How often f() calls the function of MPI.
template <class F>
int calls_of(std::string_view function, F f) {
    interposed::restart();
    f();
    const auto found = interposed::calls().find(function);
    return found == interposed::calls().end() ? 0 : found->second;
}
/// How often f() calls any.
template <class F>
int all_calls(F f) {
    interposed::restart();
    f();
    int sum = 0;
    for (const auto& [function, count] : interposed::calls()) {
        // A rank that waits for long looks whether others have returned.
        if (function != "MPI_Iprobe") { sum += count; }
    }
    return sum;
}

/// Files of this process may have no more bytes: no window can be made.
class NoFiles {
  public:
    NoFiles() {
        REQUIRE(getrlimit(RLIMIT_FSIZE, &before_) == 0);
        const rlimit little{rlim_t{64} << 20U, before_.rlim_max};
        REQUIRE(setrlimit(RLIMIT_FSIZE, &little) == 0);
    }
    ~NoFiles() { setrlimit(RLIMIT_FSIZE, &before_); }
    NoFiles(const NoFiles&) = delete;
    NoFiles& operator=(const NoFiles&) = delete;

  private:
    rlimit before_{};
};

/// Elements of which each rank's part is more than what travels with a call.
constexpr std::size_t many = 6000;

}  // namespace

TEST_CASE("mpi: between ranks of one host no collective of buffers calls MPI, nor does a small one of other memory") {
    with_world({}, [](const Comm& comm) {
        const std::size_t n = comm.size();
        auto in = comm.buffer<float>(n * many);
        auto out = comm.buffer<float>(n * many);
        std::ranges::fill(in.span(), 1.0F);
        const std::span<const float> from(in.span());
        const std::vector<std::size_t> alike(n, many);
        CHECK(all_calls([&] {
                  barrier(comm, {});
                  all_gather(comm, from.first(many), out.span(), {});
                  reduce_scatter(comm, ReduceOp::sum, from, out.span().first(many), {});
                  all_reduce(comm, ReduceOp::sum, from, out.span(), {});
                  broadcast(comm, in.span(), n - 1, {});
                  all_to_all(comm, from, out.span(), {});
                  all_to_all_uneven(comm, from, alike, out.span(), alike, {});
              }) == 0);
        double small = 1;
        CHECK(all_calls([&] { all_reduce_in_place(comm, ReduceOp::sum, std::span<double>(&small, 1), {}); }) == 0);
        CHECK(small == static_cast<double>(n));
        std::vector<float> brought(many, 1.0F);
        const int calls = all_calls([&] { all_reduce_in_place(comm, ReduceOp::sum, std::span<float>(brought), {}); });
        CHECK(brought.back() == static_cast<float>(n));
        CHECK((calls > 0) == (n > 1));
    });
}

TEST_CASE("mpi: a message between ranks of one host is copied by the receiver if it finds the sender's memory") {
    constexpr std::size_t pieces = 60;
    for (const std::size_t ranks_per_host : {std::size_t{0}, std::size_t{1}}) {
        with_world({.ranks_per_host = ranks_per_host, .message_elements = many / pieces}, [&](const Comm& comm) {
            const std::size_t n = comm.size();
            auto buffer = comm.buffer<float>(many);
            std::vector<float> heap(many);
            std::vector<float> received(many);
            const std::size_t from = (comm.rank() + n - 1) % n;
            const auto sends = [&](std::span<float> values) {
                std::iota(values.begin(), values.end(), static_cast<float>(comm.rank()));
                const int calls = calls_of(
                    "MPI_Isend", [&] { send_receive(comm, values, (comm.rank() + 1) % n, received, from, {}); });
                std::size_t wrong = 0;
                for (std::size_t i = 0; i < many; ++i) {
                    wrong += received[i] != static_cast<float>(from + i) ? 1U : 0U;
                }
                CHECK(wrong == 0);
                return calls;
            };
            // The calls of both ends and, behind them, the word that the data is copied, or the data in pieces.
            CHECK(sends(buffer.span()) == (n == 1 || ranks_per_host == 0 ? 3 : 2 + int{pieces}));
            CHECK(sends(heap) == 2 + int{pieces});
        });
    }
}

TEST_CASE("mpi: a sender may change its memory as soon as the message is sent") {
    with_world({}, [](const Comm& comm) {
        if (comm.rank() > 1 || comm.size() == 1) { return; }
        constexpr std::size_t large = std::size_t{4} << 20U;  // copied for long enough to be overwritten meanwhile
        auto buffer = comm.buffer<float>(large);
        for (int round = 0; round < 3; ++round) {
            if (comm.rank() == 0) {
                std::ranges::fill(buffer.span(), 1.0F);
                send(comm, buffer.span(), 1);
                std::ranges::fill(buffer.span(), -1.0F);
            } else {
                receive(comm, buffer.span(), 0);
                CHECK(std::ranges::count(buffer.span(), 1.0F) == static_cast<std::ptrdiff_t>(large));
            }
        }
    });
}

TEST_CASE("mpi: a large all-gather is one of shared memory, whoever's output nobody else sees") {
    with_world({}, [](const Comm& comm) {
        const std::size_t n = comm.size();
        const std::size_t k = (host::detail::streaming_bytes / sizeof(float) / n + 100) / n;
        REQUIRE(n * n * k * sizeof(float) > host::detail::streaming_bytes);
        auto in = comm.buffer<float>(k);
        auto out = comm.buffer<float>(n * k);
        std::vector<float> heap(n * k);
        std::iota(in.span().begin(), in.span().end(), static_cast<float>(comm.rank()));
        for (const std::size_t hidden : {n, n - 1}) {
            const std::span<float> full = comm.rank() == hidden ? std::span<float>(heap) : out.span();
            std::ranges::fill(full, -1.0F);
            barrier(comm, {});
            CHECK(all_calls([&] { all_gather(comm, std::span<const float>(in.span()), full, {}); }) == 0);
            std::size_t wrong = 0;
            for (std::size_t i = 0; i < n * k; ++i) {
                wrong += full[i] != static_cast<float>(i / k + i % k) ? 1U : 0U;
            }
            CHECK(wrong == 0);
        }
    });
}

TEST_CASE("mpi: a piece crosses to every other host once, addends to the rank that adds them") {
    const std::size_t n = mpi::Environment::size();
    if (n < 3) { return; }
    with_world({.ranks_per_host = 2}, [n](const Comm& comm) {
        const auto hosts = static_cast<int>((n + 1) / 2);
        const bool alone = n % 2 == 1 && comm.rank() == n - 1;
        const auto strangers = static_cast<int>(n) - (alone ? 1 : 2);
        auto in = comm.buffer<float>(n * many);
        auto out = comm.buffer<float>(n * many);
        const std::span<const float> from(in.span());
        CHECK(calls_of("MPI_Isend", [&] { all_gather(comm, from.first(many), out.span(), {}); }) == hosts - 1);
        CHECK(calls_of("MPI_Isend", [&] { broadcast(comm, in.span(), 1, {}); }) ==
              (comm.rank() == 1 ? hosts - 1 : 0));
        CHECK(calls_of("MPI_Isend", [&] { reduce_scatter(comm, ReduceOp::sum, from, out.span().first(many), {}); }) ==
              strangers);
        CHECK(calls_of("MPI_Isend", [&] { all_reduce(comm, ReduceOp::sum, from, out.span(), {}); }) ==
              strangers + hosts - 1);
        CHECK(calls_of("MPI_Isend", [&] { all_to_all(comm, from, out.span(), {}); }) == strangers);
        const std::vector<std::size_t> alike(n, many);
        CHECK(calls_of("MPI_Isend", [&] { all_to_all_uneven(comm, from, alike, out.span(), alike, {}); }) ==
              strangers);
    });
}

TEST_CASE_TEMPLATE("mpi: several hosts, every verb and size bit for bit", T, float, bf16) {
    if (mpi::Environment::size() < 3) { return; }
    with_world({.ranks_per_host = 2}, [](const auto& world) { CHECK_NOTHROW(every_verb<T>(world)); });
}

TEST_CASE("mpi: several hosts, whose members a split mixes") {
    with_world({.ranks_per_host = 2}, [](const Comm& world) {
        for (std::uint64_t colouring = 0; colouring < 8; ++colouring) {
            CHECK_NOTHROW(split_orders_members(world, verb_oracle::mixed(colouring)));
        }
        CHECK_NOTHROW(splits_run_at_once(world, 3));
        // Ranks of one host are apart from each other, and in the opposite order.
        const Comm mixed = split(world, 0, (world.size() - world.rank()) % 3, "mixed");
        CHECK_NOTHROW(check_all_gather<double>(mixed, 2000, 1));
        CHECK_NOTHROW(check_reduce_scatter<bf16, float>(mixed, 2000, 1));
        CHECK_NOTHROW(check_all_reduce<float, float>(mixed, 30011, 1));
        CHECK_NOTHROW(check_copies<float>(mixed, 3000, 1));
        CHECK_NOTHROW(check_uneven<float>(mixed, 3000, 1));
    });
}

TEST_CASE("mpi: where one rank has no window all go by messages, to the same bits") {
    for (std::size_t odd = 0; odd < mpi::Environment::size(); ++odd) {
        std::optional<NoFiles> no_window;
        if (mpi::Environment::rank() == odd) { no_window.emplace(); }
        mpi::World world(MPI_COMM_WORLD, patient());
        no_window.reset();
        CHECK(!world.shares_memory());
        const Comm comm(world);
        CHECK_NOTHROW(check_all_gather<float>(comm, 4321, 1));
        CHECK_NOTHROW(check_all_reduce<bf16, float>(comm, 20011, 1));
        world.finish();
    }
}

TEST_CASE("mpi: buffers are zeroed, apart from each other, and may outlive their World") {
    HostBuffer<float> kept;
    {
        mpi::World world(MPI_COMM_WORLD, patient());
        CHECK(world.shares_memory());
        const Comm comm(world);
        for (const std::size_t size : {std::size_t{1}, many, std::size_t{1} << 20U}) {
            CAPTURE(size);
            auto first = comm.buffer<float>(size);
            auto second = comm.buffer<float>(size);
            CHECK(std::ranges::count(first.span(), 0.0F) == static_cast<std::ptrdiff_t>(size));
            std::ranges::fill(first.span(), 1.0F);
            CHECK(std::ranges::count(second.span(), 0.0F) == static_cast<std::ptrdiff_t>(size));
            const float* const place = first.data();
            first = HostBuffer<float>();
            first = comm.buffer<float>(size);
            CHECK(first.data() == place);
            CHECK(std::ranges::count(first.span(), 0.0F) == static_cast<std::ptrdiff_t>(size));
        }
        CHECK(comm.most_placed_bytes() >= std::size_t{8} << 20U);
        CHECK(comm.buffer<double>(0).data() == nullptr);
        kept = comm.buffer<float>(many);
        std::ranges::fill(kept.span(), 2.0F);
        world.finish();
    }
    CHECK(std::ranges::count(kept.span(), 2.0F) == static_cast<std::ptrdiff_t>(many));
}

TEST_CASE("mpi: more memory than there is comes from no window") {
    with_world({}, [](const Comm& comm) {
        CHECK_THROWS_AS(comm.buffer<double>(std::size_t{1} << 59U), std::bad_alloc);
        CHECK_THROWS_AS(comm.buffer<double>(std::size_t{1} << 62U), std::length_error);
    });
}

}  // namespace shared_memory_test
