// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <thread>

#include <doctest/doctest.h>

#include <shardkit/backend/threads/wait_word.hpp>

namespace wait_word_test {

namespace {

using shardkit::threads::detail::Progress;
using shardkit::threads::detail::SpinBudget;
using shardkit::threads::detail::WaitWord;

}  // namespace

TEST_CASE("wait word: counts go around and stay comparable") {
    const std::uint32_t start = WaitWord::count_mask - 3;
    WaitWord word(start);
    const std::uint32_t target = WaitWord::advanced(start, 6);
    CHECK(target == 2);
    for (int i = 0; i < 6; ++i) {
        CHECK(word.progress(target) == Progress::pending);
        CHECK(word.progress(start) == Progress::reached);
        REQUIRE(word.enter(target));
    }
    CHECK(word.count() == target);
    CHECK(word.progress(target) == Progress::reached);
    CHECK_FALSE(word.poisoned());
}

TEST_CASE("wait word: poison refuses entries, keeps the count, and does not hide what was reached") {
    WaitWord word(10);
    word.poison();
    CHECK(word.poisoned());
    CHECK(word.count() == 10);
    CHECK_FALSE(word.enter(11));
    CHECK_FALSE(word.exchange(10, 11));
    CHECK(word.count() == 10);
    CHECK(word.progress(10) == Progress::reached);
    CHECK(word.progress(11) == Progress::poisoned);
    CHECK(word.block(11) == Progress::poisoned);
    word.leave(11);
    CHECK(word.count() == 11);
    CHECK(word.progress(11) == Progress::reached);
    CHECK(word.block(11) == Progress::reached);
}

TEST_CASE("wait word: exits count around the end without touching the poison") {
    WaitWord word(WaitWord::count_mask);
    word.poison();
    word.leave(0);
    CHECK(word.count() == 0);
    CHECK(word.poisoned());
    WaitWord clean(WaitWord::count_mask);
    clean.leave(1, 2);
    CHECK(clean.count() == 1);
    CHECK_FALSE(clean.poisoned());
}

TEST_CASE("wait word: exchange moves from one count only") {
    WaitWord word(4);
    CHECK_FALSE(word.exchange(3, 9));
    CHECK(word.count() == 4);
    CHECK(word.exchange(4, 9));
    CHECK(word.count() == 9);
}

TEST_CASE("wait word: a sleeper wakes for the target, and for poison only while it waits to enter") {
    WaitWord word;
    std::thread entering([&] { CHECK(word.block(5) == Progress::poisoned); });
    word.poison();
    entering.join();
    std::thread leaving([&] {
        SpinBudget none;
        word.wait_for_exit(2, none);
    });
    word.leave(2);
    word.leave(2);
    leaving.join();
    CHECK(word.count() == 2);
}

TEST_CASE("wait word: looks that were in vain make the budget smaller, those that were not larger") {
    WaitWord word;
    SpinBudget budget(160);
    CHECK(word.poll(1, budget) == Progress::pending);
    CHECK(budget.looks() == 80);
    for (int i = 0; i < 9; ++i) { CHECK(word.poll(1, budget) == Progress::pending); }
    CHECK(budget.looks() == 2);
    CHECK(word.poll(0, budget) == Progress::reached);  // at the first look: says nothing about spinning
    CHECK(budget.looks() == 2);
    budget.came();
    CHECK(budget.looks() == 4);
    for (int i = 0; i < 9; ++i) { budget.came(); }
    CHECK(budget.looks() == 160);

    // Whoever is always late by a little more than the least is waited for awake again, at one try in sixteen.
    const auto give_up = [&](std::uint32_t times) {
        for (std::uint32_t i = 0; i < times; ++i) { budget.in_vain(); }
    };
    give_up(SpinBudget::retry - 1);
    CHECK(budget.looks() == 2);
    give_up(1);
    CHECK(budget.looks() == 160);
    give_up(1);
    CHECK(budget.looks() == 2);
    give_up(SpinBudget::retry - 1);
    CHECK(budget.looks() == 160);
    budget.came();
    CHECK(budget.looks() == 160);
    give_up(1);
    CHECK(budget.looks() == 80);

    SpinBudget none(0);
    CHECK(word.poll(1, none) == Progress::pending);
    none.came();
    CHECK(none.looks() == 0);
}

}  // namespace wait_word_test
