// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/launch.hpp>
#include <shardkit/comm/agreement.hpp>
#include <shardkit/comm/compare_calls.hpp>
#include <shardkit/verbs/all_gather.hpp>

namespace compare_calls_test {

namespace {

using namespace shardkit;

Call call(Verb verb, std::size_t count, std::uint32_t line = 1) {
    return {{verb, ElementType::fp32, ElementType::fp32, ReduceOp::sum, 0, count, 0}, 4 * count, {"train.cpp", line}};
}

/// A rank's trace, of calls that its flight recorder has.
struct Trace : detail::CallTrace {
    engine::Journal journal;

    using CallTrace::CallTrace;
    void add(const Call& made) {
        journal.begin(journal.label("world"), made);
        CallTrace::add(made);
    }
};

/// What each of `ranks` ranks finds out after calls(rank, trace), with all-gathers of the threads engine.
std::vector<std::string> found(std::size_t ranks, const std::function<void(std::size_t, Trace&)>& calls) {
    std::vector<std::string> texts(ranks);
    threads::launch(ranks, [&](const shardkit::Communicator& world) {
        Trace trace(ranks);
        calls(world.rank(), trace);
        std::vector<std::uint8_t> all(ranks * detail::trace_bytes);
        const auto gather = [&](const auto& value) {
            std::vector<std::uint8_t> own(sizeof value);
            std::memcpy(own.data(), &value, sizeof value);
            all_gather(world, std::span<const std::uint8_t>(own), std::span(all).first(ranks * sizeof value), {});
            using Value = std::remove_cvref_t<decltype(value)>;
            std::vector<Value> values(ranks);
            std::memcpy(static_cast<void*>(values.data()), all.data(), ranks * sizeof value);
            return values;
        };
        texts[world.rank()] = detail::find_disagreement(trace, trace.journal, gather).value_or("");
    });
    return texts;
}
void check_all(const std::vector<std::string>& texts, const std::string& expected) {
    for (const std::string& text : texts) { CHECK(text == expected); }
}

}  // namespace

TEST_CASE("statements: numbers of every unsigned type have one hash") {
    using detail::statement_hash;
    // std::size_t is unsigned long where std::uint64_t is unsigned long long, as on macOS.
    static_assert(statement_hash(0, 7UL) == statement_hash(0, 7ULL));
    static_assert(statement_hash(0, 7U, std::uint8_t{1}) == statement_hash(0, std::uint64_t{7}, std::size_t{1}));
    static_assert(statement_hash(0, 7U) != statement_hash(0, 8U));
    CHECK(statement_hash(statement_hash(0, std::size_t{7}), 1U) == statement_hash(0, 7U, 1U));
}

TEST_CASE("compare_calls: ranks that called the same agree, also when they called nothing") {
    check_all(found(3, [](std::size_t, Trace&) {}), "");
    check_all(found(3,
                    [](std::size_t rank, Trace& trace) {
                        for (std::size_t i = 0; i < 1000; ++i) {
                            trace.add(call(Verb::all_gather, i, static_cast<std::uint32_t>(rank)));
                        }
                    }),
              "");  // from where does not matter
}

TEST_CASE("compare_calls: the first call in which two ranks differ is named on every rank") {
    const auto swapped = [](std::size_t rank, Trace& trace) {
        trace.add(call(Verb::barrier, 0));
        trace.add(rank == 2 ? call(Verb::reduce_scatter, 10, 7) : call(Verb::all_gather, 10, 8));
        trace.add(rank == 2 ? call(Verb::all_gather, 10, 8) : call(Verb::reduce_scatter, 10, 7));
    };
    check_all(found(3, swapped),
              "the ranks disagree in call 1: rank 0 calls all_gather of 10 fp32 at train.cpp:8, rank 2 calls "
              "reduce_scatter sum of 10 fp32 at train.cpp:7");
    const auto counts = [](std::size_t rank, Trace& trace) {
        for (std::size_t i = 0; i < 600; ++i) { trace.add(call(Verb::all_gather, i == 500 ? 10 + rank : i)); }
    };
    check_all(found(2, counts),
              "the ranks disagree in call 500: rank 0 calls all_gather of 10 fp32 at train.cpp:1, rank 1 calls "
              "all_gather of 11 fp32 at train.cpp:1");
}

TEST_CASE("compare_calls: a rank that calls one more, or one less, is named") {
    for (const std::size_t before : {0U, 5U, 255U, 256U, 1000U}) {
        const auto more = [&](std::size_t rank, Trace& trace) {
            for (std::size_t i = 0; i < before; ++i) { trace.add(call(Verb::all_gather, i)); }
            if (rank == 1) { trace.add(call(Verb::all_reduce, 10, 9)); }
        };
        check_all(found(2, more), "the ranks disagree in call " + std::to_string(before) +
                                      ": rank 0 calls nothing more, rank 1 calls all_reduce sum of 10 fp32 at "
                                      "train.cpp:9");
    }
}

namespace {

/// An uneven exchange of `ranks` ranks that send each other 5 elements each, but for what one says.
struct Uneven {
    std::size_t rank;
    std::vector<std::size_t> sends;
    std::vector<std::size_t> receives;

    Uneven(std::size_t ranks, std::size_t own) : rank(own), sends(ranks, 5), receives(ranks, 5) {}
    void add_to(Trace& trace, std::uint32_t line = 1) const {
        trace.add(call(Verb::all_to_all_uneven, 0, line));
        trace.add_counts(rank, {sends, receives});
    }
};

}  // namespace

TEST_CASE("compare_calls: ranks whose counts of an uneven all-to-all contradict each other are named, with both") {
    const auto with = [](std::size_t after, const std::function<void(Uneven&)>& fault) {
        return found(3, [&](std::size_t rank, Trace& trace) {
            Uneven all(3, rank);
            all.add_to(trace);
            trace.add(call(Verb::barrier, 0));
            fault(all);
            all.add_to(trace, static_cast<std::uint32_t>(rank));
            for (std::size_t i = 0; i < after; ++i) { trace.add(call(Verb::barrier, 0)); }
        });
    };
    check_all(with(3, [](Uneven&) {}), "");
    check_all(with(3,
                   [](Uneven& all) {
                       if (all.rank == 1) { all.sends = {6, 5, 4}; }
                   }),
              "the ranks disagree in call 2: rank 1 calls all_to_all_uneven of fp32 with 6 to rank 0 at train.cpp:1, "
              "rank 0 calls all_to_all_uneven of fp32 with 5 from rank 1 at train.cpp:0");
    check_all(with(0,
                   [](Uneven& all) {
                       if (all.rank == 2) { all.receives[0] = std::size_t{5} << 40U; }
                   }),
              "the ranks disagree in call 2: rank 0 calls all_to_all_uneven of fp32 with 5 to rank 2 at train.cpp:0, "
              "rank 2 calls all_to_all_uneven of fp32 with 5497558138880 from rank 0 at train.cpp:2");
    // What is longer ago than the last 64 exchanges, or than the last 256 calls.
    check_all(found(2,
                    [](std::size_t rank, Trace& trace) {
                        for (std::size_t i = 0; i < 100; ++i) {
                            Uneven all(2, rank);
                            if (i == 7 && rank == 1) { all.receives[0] = 6; }
                            all.add_to(trace);
                        }
                    }),
              "the ranks disagree about the counts of an uneven all-to-all before call 36");
    check_all(with(300,
                   [](Uneven& all) {
                       if (all.rank == 2) { all.receives[0] = 6; }
                   }),
              "the ranks disagree in call 2: rank 0 calls what it no longer knows, rank 2 calls what it no longer "
              "knows");
}

TEST_CASE("compare_calls: two uneven all-to-alls in another order do not make up for each other") {
    check_all(found(2,
                    [](std::size_t rank, Trace& trace) {
                        for (const std::size_t i : {0U, 1U}) {
                            Uneven all(2, rank);
                            (rank == 0 ? all.sends[1] : all.receives[0]) = i == rank ? 7 : 8;
                            all.add_to(trace);
                        }
                    }),
              "the ranks disagree in call 0: rank 0 calls all_to_all_uneven of fp32 with 7 to rank 1 at train.cpp:1, "
              "rank 1 calls all_to_all_uneven of fp32 with 8 from rank 0 at train.cpp:1");
}

TEST_CASE("compare_calls: what is longer ago than ranks remember is said to be") {
    const auto long_ago = [](std::size_t rank, Trace& trace) {
        for (std::size_t i = 0; i < 300; ++i) { trace.add(call(Verb::all_gather, i == 2 ? rank : i)); }
    };
    check_all(found(2, long_ago),
              "the ranks disagree in call 44 or before: rank 0 calls all_gather of 44 fp32 at train.cpp:1, rank 1 "
              "calls all_gather of 44 fp32 at train.cpp:1");
    const auto far_ahead = [](std::size_t rank, Trace& trace) {
        for (std::size_t i = 0; i < (rank == 0 ? 10U : 1000U); ++i) { trace.add(call(Verb::all_gather, i)); }
    };
    check_all(found(2, far_ahead),
              "the ranks disagree in call 744 or before: rank 0 calls nothing more, rank 1 calls all_gather of 744 "
              "fp32 at train.cpp:1");
}

}  // namespace compare_calls_test
