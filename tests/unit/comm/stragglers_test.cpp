// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/comm/journal.hpp>
#include <shardkit/comm/verb.hpp>
#include <shardkit/recorder/rank_record.hpp>

#include "who_is_missing/stragglers.hpp"

namespace stragglers_test {

namespace {

using namespace shardkit;

constexpr std::int64_t begin = 1'800'000'000'000'000'000;  // nanoseconds since 1970
constexpr std::int64_t ms = 1'000'000;

/// Ranks whose calls begin and end at times that are given, each by a clock of its own.
class Job {
  public:
    /// `clock(rank)` is what a rank's clock is ahead, in nanoseconds.
    explicit Job(std::size_t ranks, const std::function<std::int64_t(std::size_t)>& clock = {}) {
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            clocks_.push_back(clock ? clock(rank) : 0);
            records.push_back({"test", rank, ranks, "", false, 0, {}, 0});
        }
    }
    /// One call over `members`, each of which comes at its time; all have it behind them a while after the last.
    void call(std::uint32_t step, Verb verb, const std::vector<std::size_t>& members,
              const std::vector<std::int64_t>& come, const std::string& axes = "world") {
        const auto shared = std::make_shared<const std::vector<std::size_t>>(members);
        const std::int64_t end = *std::max_element(come.begin(), come.end()) + 50'000;
        for (std::size_t m = 0; m < members.size(); ++m) {
            add(step, verb, members[m], come[m], end + noise(9'000), axes, shared, 0);
        }
    }
    /// A message of two ranks of the world, each of which comes at its time.
    void message(std::uint32_t step, std::size_t from, std::size_t to, std::int64_t sent, std::int64_t received) {
        auto all = std::make_shared<std::vector<std::size_t>>();
        for (const recorder::RankRecord& record : records) { all->push_back(record.rank); }
        const std::int64_t end = std::max(sent, received) + 10'000;
        add(step, Verb::send, from, sent, end, "world", all, to);
        add(step, Verb::receive, to, received, end, "world", all, from);
    }
    std::int64_t noise(std::int64_t most) {
        random_ = random_ * 6364136223846793005ULL + 1442695040888963407ULL;
        return static_cast<std::int64_t>((random_ >> 33U) % static_cast<std::uint64_t>(most));
    }

    std::vector<recorder::RankRecord> records;

  private:
    void add(std::uint32_t step, Verb verb, std::size_t rank, std::int64_t come, std::int64_t done,
             const std::string& axes, const std::shared_ptr<const std::vector<std::size_t>>& members,
             std::size_t peer) {
        std::vector<recorder::RecentCall>& calls = records[rank].calls;
        recorder::RecentCall made;
        made.number = calls.size();
        made.axes = axes;
        made.signature.verb = verb;
        made.signature.argument = peer;
        made.subject = verb == Verb::all_gather ? "'blocks.0' parameters" : "";
        for (const recorder::RecentCall& before : calls) {
            made.sequence += before.axes == axes && !detail::is_message(before.signature.verb) ? 1U : 0U;
        }
        const auto at = [&](std::int64_t time) { return static_cast<std::uint64_t>(begin + time + clocks_[rank]); };
        made.given = made.begun = at(come);
        made.done = at(done);
        made.members = members;
        made.step = step;
        calls.push_back(made);
    }

    std::vector<std::int64_t> clocks_;
    std::uint64_t random_ = 7;
};

std::vector<std::size_t> all_of(std::size_t ranks) {
    std::vector<std::size_t> all(ranks);
    for (std::size_t i = 0; i < ranks; ++i) { all[i] = i; }
    return all;
}
/// Steps of 100 ms with a gather and a barrier, to which the ranks come at about one time, but for what is late(step,
/// rank), in milliseconds, at the gather.
Job job_of(std::size_t ranks, std::uint32_t steps,
           const std::function<std::int64_t(std::uint32_t, std::size_t)>& late,
           const std::function<std::int64_t(std::size_t)>& clock = {}) {
    Job job(ranks, clock);
    for (std::uint32_t step = 0; step < steps; ++step) {
        std::vector<std::int64_t> come(ranks);
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            come[rank] = (100 * static_cast<std::int64_t>(step) + late(step, rank)) * ms + job.noise(ms);
        }
        job.call(step, Verb::all_gather, all_of(ranks), come);
        for (std::int64_t& time : come) { time = (100 * static_cast<std::int64_t>(step) + 90) * ms + job.noise(ms); }
        job.call(step, Verb::barrier, all_of(ranks), come);
    }
    return job;
}
std::int64_t nobody(std::uint32_t, std::size_t) { return 0; }
bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("find_stragglers: a slow rank is named, whatever the clocks of the ranks show") {
    const std::function<std::int64_t(std::size_t)> clocks[] = {
        {},
        [](std::size_t rank) { return static_cast<std::int64_t>(rank) * 3'600'000 * ms; },
        // By as much as the rank is late, so that it seems to come with the others, or the others late.
        [](std::size_t rank) { return rank == 1 ? -40 * ms : 0; },
        [](std::size_t rank) { return rank == 1 ? 0 : 77 * ms; }};
    for (const auto& clock : clocks) {
        for (const std::size_t ranks : {2U, 3U, 64U}) {
            const Job job = job_of(
                ranks, 8, [](auto, std::size_t rank) { return rank == 1 ? 40 : 0; }, clock);
            const flight_records::Stragglers found = flight_records::find_stragglers(job.records);
            CAPTURE(found.text);
            CHECK(found.ranks == std::vector<std::size_t>{1});
            CHECK(found.steps == 8);
            CHECK(found.left_out.empty());
            for (std::size_t i = 0; i < 8; ++i) {
                const flight_records::RankWait& wait = found.waits[i];
                CHECK(wait.rank == 1);
                CHECK(wait.group == "'blocks.0' parameters over world");
                CHECK(wait.calls == 1);
                CHECK(wait.seconds == doctest::Approx(0.040).epsilon(0.04));
                if (wait.step > 0) { CHECK(wait.share == doctest::Approx(0.4).epsilon(0.04)); }
            }
            CHECK(has(found.text, "the others waited for rank 1 for 0.3"));
        }
    }
}

TEST_CASE("find_stragglers: without a slow rank nobody is named, nor for one late step") {
    for (const std::size_t ranks : {1U, 2U, 3U, 64U}) {
        const flight_records::Stragglers found = flight_records::find_stragglers(
            job_of(ranks, 9, nobody, [](std::size_t rank) { return rank % 2 == 0 ? 0 : -5 * ms; }).records);
        CAPTURE(found.text);
        CHECK(found.ranks.empty());
        CHECK(found.text == "no rank is late in most of 9 steps");
        CHECK(found.steps == 9);
    }
    const flight_records::Stragglers found = flight_records::find_stragglers(
        job_of(3, 9, [](auto step, std::size_t rank) { return step == 4 && rank == 2 ? 60 : 0; }).records);
    CHECK(found.ranks.empty());
    CHECK(found.waits[0].rank == 2);
    CHECK(found.waits[0].step == 4);
    CHECK(found.waits[0].seconds == doctest::Approx(0.060).epsilon(0.04));
    const auto slow = [](auto, std::size_t rank) { return rank == 1 ? 40 : 0; };
    CHECK(flight_records::find_stragglers(job_of(3, 3, slow).records).text ==
          "3 whole steps are too few to name a late rank");
    CHECK(flight_records::find_stragglers(job_of(3, 4, slow).records).ranks == std::vector<std::size_t>{1});
    CHECK(flight_records::find_stragglers({}).ranks.empty());
}

TEST_CASE("find_stragglers: the time that ranks wait is charged to those that have not come, and to nobody else") {
    Job job(3);
    job.call(1, Verb::all_gather, {0, 1, 2}, {0, 9 * ms, 10 * ms});
    std::vector<recorder::RankRecord> on_threads = job.records;
    for (recorder::RankRecord& record : on_threads) { record.engine = "threads"; }
    const flight_records::Stragglers found = flight_records::find_stragglers(on_threads);
    REQUIRE(found.waits.size() == 2);
    // For 9 ms rank 0 waits for two ranks, then two ranks for 1 ms for one.
    CHECK(found.waits[0].rank == 2);
    CHECK(found.waits[0].seconds == doctest::Approx((4.5 + 2) / 2 * 1e-3).epsilon(1e-6));
    CHECK(found.waits[1].rank == 1);
    CHECK(found.waits[1].seconds == doctest::Approx(4.5 / 2 * 1e-3).epsilon(1e-6));
}

TEST_CASE("find_stragglers: a step of which a record lacks calls is said to be left out") {
    Job job = job_of(3, 8, [](auto, std::size_t rank) { return rank == 1 ? 40 : 0; });
    std::vector<recorder::RecentCall>& calls = job.records[2].calls;
    calls.erase(calls.begin());                         // of step 0
    calls.erase(calls.begin() + 6, calls.begin() + 8);  // the barrier of step 3 and the gather of step 4
    flight_records::Stragglers found = flight_records::find_stragglers(job.records);
    CHECK(found.ranks == std::vector<std::size_t>{1});
    CHECK(found.left_out == std::vector<std::uint32_t>{0, 3, 4});
    CHECK(found.steps == 5);
    CHECK(has(found.text, "\nnot counted, as a rank's record no longer has all of their calls: steps 0, 3-4"));
    for (const flight_records::RankWait& wait : found.waits) {
        CHECK((wait.step != 0 && wait.step != 3 && wait.step != 4));
    }
    // Without a rank's record nothing is known of its calls.
    job.records.erase(job.records.begin());
    found = flight_records::find_stragglers(job.records);
    CHECK(found.waits.empty());
    CHECK(found.ranks.empty());
}

TEST_CASE("find_stragglers: clocks of ranks that meet in groups, in messages, and behind broadcasts") {
    Job job(4, [](std::size_t rank) { return static_cast<std::int64_t>(rank * rank) * 1000 * ms; });
    for (std::uint32_t step = 1; step <= 6; ++step) {
        const std::int64_t at = 100 * step * ms;
        job.call(step, Verb::all_reduce, {2, 3}, {at, at}, "tp");
        job.call(step, Verb::all_reduce, {0, 1}, {at, at}, "tp");
        job.call(step, Verb::barrier, {1, 3}, {at + ms, at + ms}, "dp");
        // The second of the messages finds its sender late, by 20 ms.
        for (std::int64_t i = 1; i <= 3; ++i) {
            const std::int64_t come = at + i * 5 * ms;
            job.message(step, 3, 0, come + (i > 1 ? 20 * ms : 0), come + (i > 2 ? 20 * ms : 0));
        }
        job.call(step, Verb::broadcast, {0, 1, 2, 3}, {at + 50 * ms, at + 50 * ms, at + 50 * ms, at + 50 * ms});
        // Some ranks see its end later.
        for (std::size_t rank = 2; rank < 4; ++rank) { job.records[rank].calls.back().done += 30 * ms; }
    }
    const flight_records::Stragglers found = flight_records::find_stragglers(job.records);
    CAPTURE(found.text);
    CHECK(found.ranks == std::vector<std::size_t>{3});
    for (std::size_t i = 0; i < 6; ++i) {
        const flight_records::RankWait& wait = found.waits[i];
        CHECK(wait.rank == 3);
        CHECK(has(wait.group, " over world"));
        CHECK(wait.seconds == doctest::Approx(0.020).epsilon(0.01));
    }
    CHECK(found.waits[6].seconds < 0.001);
}

}  // namespace stragglers_test
