// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/mpi/environment.hpp>
#include <shardkit/verbs/all_reduce.hpp>
#include <shardkit/verbs/split.hpp>

#include "unit/backend/verb_suite.hpp"
#include "with_world.hpp"

namespace disagreement_test {

namespace {

using namespace shardkit;
using namespace verb_suite;
using namespace mpi_test;
using rank_checks::contains;
using Comm = shardkit::Communicator;

struct Buffers {
    std::vector<double> doubles = std::vector<double>(60, 1.0);
    std::vector<float> floats = std::vector<float>(60, 1.0F);
    std::vector<bf16> halves = std::vector<bf16>(60, bf16(1.0F));
    Guarded<float> out{60, 1};
    Guarded<double> wide_out{60, 1};

    std::span<const float> in() const { return floats; }
};
using Act = std::function<void(const Comm&, Buffers&)>;

/// Rank `odd` does `other` while the rest do `usual`: all are told, by a CommError that names both, nothing is
/// written, and the group stays usable.
void check_told(const Act& usual, const Act& other, const std::string& usual_text, const std::string& other_text) {
    with_world({}, [&](const Comm& world) {
        for (std::size_t odd = 0; odd < world.size(); ++odd) {
            Buffers buffers;
            std::string text = "no error";
            try {
                (world.rank() == odd ? other : usual)(world, buffers);
            } catch (const CommError& error) { text = error.what(); }
            CAPTURE(odd);
            CAPTURE(text);
            CHECK(contains(text, "the ranks disagree in call "));
            CHECK(contains(text, usual_text + " at "));
            CHECK(contains(text, other_text + " at "));
            CHECK(contains(text, "disagreement_test.cpp:"));
            CHECK(buffers.out.untouched());
            CHECK(buffers.wide_out.untouched());
            CHECK_NOTHROW(check_all_reduce<float, float>(world, 100, 1));
        }
    });
}

const Act reduce_60 = [](const Comm& c, Buffers& b) { all_reduce(c, ReduceOp::sum, b.in(), b.out.span(), {}); };
const std::string reduce_60_text = "all_reduce sum of 60 fp32";

bool alone() { return mpi::Environment::size() == 1; }

}  // namespace

TEST_CASE("mpi: ranks that call the same for different groups are told which") {
    if (alone()) { return; }
    static const engine::CallSubject first("'blocks.0' gradients");
    static const engine::CallSubject second("'blocks.1' gradients");
    const auto reduce_for = [](const engine::CallSubject& subject) {
        return Act([&subject](const Comm& c, Buffers& b) {
            all_reduce(c, ReduceOp::sum, b.in(), b.out.span(), {}, {SourceLocation::current(), &subject});
        });
    };
    check_told(reduce_for(first), reduce_for(second), reduce_60_text + " for 'blocks.0' gradients",
               reduce_60_text + " for 'blocks.1' gradients");
}

TEST_CASE("mpi: ranks that state different things beside the same call are told which, with both values") {
    if (alone()) { return; }
    const auto reduce_stating = [](double divisor) {
        return Act([divisor](const Comm& c, Buffers& b) {
            auto& book = c.label().journal.statements();
            static const std::string path = "'blocks.0'";
            const auto group = book.add_group();
            const SourceLocation here = SourceLocation::current();
            const detail::StatedStep step{divisor, 0, 0, here};
            book.note(step);
            detail::StatedGroup stated;
            stated.gradients = step.gradients_hash();
            stated.path = &path;
            book.note(*group, stated);
            all_reduce(c, ReduceOp::sum, b.in(), b.out.span(), {}, {here, nullptr, stated.plain_hash()});
        });
    };
    check_told(reduce_stating(2), reduce_stating(3), reduce_60_text + " with divisor 2",
               reduce_60_text + " with divisor 3");
}

TEST_CASE("mpi: ranks that call different verbs, counts, types, operations or roots are told which") {
    if (alone()) { return; }
    check_told(
        reduce_60, [](const Comm& c, Buffers&) { barrier(c, {}); }, reduce_60_text, "barrier");
    check_told(
        reduce_60, [](const Comm& c, Buffers&) { split(c, 0, 0, "x"); }, reduce_60_text, "split");
    check_told(
        reduce_60, [](const Comm& c, Buffers& b) { all_gather(c, b.in().first(60 / c.size()), b.out.span(), {}); },
        reduce_60_text, "all_gather of " + std::to_string(60 / mpi::Environment::size()) + " fp32");
    check_told(
        reduce_60,
        [](const Comm& c, Buffers& b) { all_reduce(c, ReduceOp::sum, b.in().first(59), b.out.span().first(59), {}); },
        reduce_60_text, "all_reduce sum of 59 fp32");
    check_told(
        reduce_60,
        [](const Comm& c, Buffers& b) {
            all_reduce(c, ReduceOp::sum, std::span<const bf16>(b.halves), b.out.span(), {});
        },
        reduce_60_text, "all_reduce sum of 60 bf16 into fp32");
    check_told(
        reduce_60, [](const Comm& c, Buffers& b) { all_reduce(c, ReduceOp::max, b.in(), b.out.span(), {}); },
        reduce_60_text, "all_reduce max of 60 fp32");
    check_told([](const Comm& c, Buffers& b) { broadcast(c, b.out.span(), 0, {}); },
               [](const Comm& c, Buffers& b) { broadcast(c, b.out.span(), 1, {}); },
               "broadcast of 60 fp32 from root 0", "broadcast of 60 fp32 from root 1");
}

TEST_CASE("mpi: ranks whose counts of an uneven all-to-all contradict each other are told, and nothing moves") {
    if (alone()) { return; }
    for (const mpi::Options& options : {mpi::Options{}, {.shared_memory = false}, {.ranks_per_host = 1}}) {
        CAPTURE(options.shared_memory);
        CAPTURE(options.ranks_per_host);
        with_world(options, [](const Comm& world) {
            const std::size_t n = world.size();
            for (std::size_t odd = 0; odd < n; ++odd) {
                const std::size_t next = (odd + 1) % n;
                std::vector<std::size_t> sends(n, 10);
                std::vector<std::size_t> receives(n, 10);
                auto sent = world.buffer<float>(10 * n);
                auto received = world.buffer<float>(10 * n);
                std::ranges::fill(sent.span(), 1.0F);
                if (world.rank() == odd) { sends[next] = 0; }
                std::string text = "no error";
                const std::size_t all = 10 * n - (world.rank() == odd ? 10 : 0);
                try {
                    all_to_all_uneven(world, sent.span().first(all), sends, received.span(), receives, {});
                } catch (const CommError& error) { text = error.what(); }
                CAPTURE(odd);
                CAPTURE(text);
                const auto said = [&](std::size_t rank, const char* with, std::size_t other) {
                    return "rank " + std::to_string(rank) + " calls all_to_all_uneven of fp32 with " + with +
                           std::to_string(other) + " at ";
                };
                CHECK(contains(text, "the ranks disagree in call "));
                CHECK(contains(text, said(odd, "0 to rank ", next)));
                CHECK(contains(text, said(next, "10 from rank ", odd)));
                CHECK(contains(text, "disagreement_test.cpp:"));
                CHECK(std::ranges::count(received.span(), 0.0F) == static_cast<std::ptrdiff_t>(10 * n));
                CHECK_NOTHROW(check_uneven<float>(world, 100, 1));
            }
        });
    }
}

TEST_CASE("mpi: messages whose ends disagree in type or count are refused on both, and the ends stay usable") {
    if (alone()) { return; }
    with_world({}, [](const Comm& world) {
        std::vector<float> floats(8, 1.0F);
        std::vector<std::int32_t> words(8, 7);
        const auto refused = [&](auto call) {
            try {
                call();
            } catch (const CommError& error) { return std::string(error.what()); }
            return std::string("no error");
        };
        for (int repeat = 0; repeat < 3; ++repeat) {
            std::string text = "rank ";
            if (world.rank() == 0) {
                text = refused([&] { send(world, std::span<const float>(floats), 1, {}); });
            } else if (world.rank() == 1) {
                text = refused([&] { receive(world, std::span<float>(floats).first(7), 0, {}); });
            }
            if (world.rank() < 2) {
                CAPTURE(text);
                CHECK(contains(text, "the ranks disagree: rank 0 calls send of 8 fp32 at "));
                CHECK(contains(text, "rank 1 calls receive of 7 fp32 at "));
            }
            if (world.rank() == 0) {
                text = refused([&] { send(world, std::span<const float>(floats), 1, {}); });
            } else if (world.rank() == 1) {
                text = refused([&] { receive(world, std::span<std::int32_t>(words), 0, {}); });
                CHECK(contains(text, "rank 1 calls receive of 8 int32 at "));
                CHECK(words == std::vector<std::int32_t>(8, 7));
            }
            CHECK_NOTHROW(check_send_and_receive<float>(world, 10));
        }
    });
}

}  // namespace disagreement_test
