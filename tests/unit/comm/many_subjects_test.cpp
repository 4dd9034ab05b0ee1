// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <ctime>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/comm/journal.hpp>
#include <shardkit/sharded/adopted_ranges.hpp>

namespace sk = shardkit;

namespace many_subjects_test {

namespace {

/// Seconds of a processor that `f` takes of the calling thread's.
template <class F>
double processor_seconds(const F& f) {
    const auto now = [] {
        timespec time{};
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
        return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    };
    const double begin = now();
    f();
    return now() - begin;
}

constexpr std::size_t many = 40000;

}  // namespace

TEST_CASE("Journal: 40,000 subjects take the time of their number, and each stays where it was") {
    sk::engine::Journal journal;
    std::vector<const sk::engine::CallSubject*> subjects;
    const double taken = processor_seconds([&] {
        for (std::size_t i = 0; i < many; ++i) {
            subjects.push_back(&journal.subject("'blocks." + std::to_string(i) + "' parameters"));
        }
    });
    CHECK(taken < 1);  // 4 s and more where each looks through all
    bool same = true;
    for (std::size_t i = 0; i < many; i += 97) {
        const std::string text = "'blocks." + std::to_string(i) + "' parameters";
        same = same && &journal.subject(text) == subjects[i] && subjects[i]->text == text;
    }
    CHECK(same);
}

TEST_CASE("AdoptedRanges: 40,000 groups adopt, and end, in the time of their number") {
    std::vector<std::byte> memory(4 * many);
    const double taken = processor_seconds([&] {
        std::vector<std::unique_ptr<sk::detail::AdoptedRanges>> held;
        for (std::size_t i = 0; i < many; ++i) {
            held.push_back(std::make_unique<sk::detail::AdoptedRanges>("a", std::span(memory).subspan(4 * i, 2),
                                                                       std::span(memory).subspan(4 * i + 2, 2),
                                                                       sk::SourceLocation::current()));
        }
        for (auto& each : held) { each.reset(); }  // as a vector ends its elements
    });
    CHECK(taken < 1);
}

}  // namespace many_subjects_test
