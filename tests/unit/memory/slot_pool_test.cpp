// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/backend/host/command_queue.hpp>
#include <shardkit/memory/slot_pool.hpp>

#include "../thrown_message.hpp"

namespace slot_pool_test {

namespace {

using namespace shardkit;
using Pool = detail::SlotPool;
using Pools = detail::SlotPools;
using Lease = detail::SlotLease;

/// Memory whose buffers are counted.
int live = 0;
constexpr detail::SlotSource counted{nullptr, [](const void*, std::size_t bytes) {
                                         ++live;
                                         auto* const memory = new char[bytes]();
                                         return HostBuffer<std::uint8_t>({memory, memory,
                                                                          [](void* owner) noexcept {
                                                                              --live;
                                                                              delete[] static_cast<char*>(owner);
                                                                          }},
                                                                         bytes);
                                     }};

constexpr SourceLocation here{"slot_pool_test.cpp", 1};

static_assert(!std::is_copy_constructible_v<Lease> && std::is_nothrow_move_constructible_v<Lease>);

}  // namespace

TEST_CASE("SlotPool: group k takes slot k mod in_flight when it is free") {
    for (std::size_t in_flight = 1; in_flight <= 4; ++in_flight) {
        Pool pool(256, in_flight);
        std::vector<std::size_t> ordinals;
        for (std::size_t k = 0; k < 11; ++k) { ordinals.push_back(pool.join()); }
        std::vector<void*> slots;
        for (std::size_t k = 0; k < 11; ++k) {
            REQUIRE(ordinals[k] == k);
            const std::size_t slot = pool.lease(k, "group", "gather", here);
            slots.push_back(pool.slot(slot).memory.data());
            pool.release(slot, {});
        }
        for (std::size_t k = 0; k < 11; ++k) { CHECK(slots[k] == slots[k % in_flight]); }
        CHECK(std::set<void*>(slots.begin(), slots.end()).size() == in_flight);
        for (std::size_t k = 0; k < 11; ++k) { pool.leave(); }
    }
}

TEST_CASE("SlotPool: fewer groups than in_flight make fewer slots") {
    Pool pool(64, 8);
    pool.join();
    pool.join();
    const std::size_t first = pool.lease(0, "a", "gather", here);
    const std::size_t second = pool.lease(1, "b", "gather", here);
    CHECK(pool.slot(first).memory.data() != pool.slot(second).memory.data());
    check_usage_error(
        "'a': no gather buffer is free, 2 are held by 'a', 'b'; end a window first or raise "
        "RankOptions::in_flight",
        here, [&] { pool.lease(0, "a", "gather", here); });
}

TEST_CASE("SlotPool: an occupied slot is passed over, in order") {
    Pool pool(64, 3);
    for (int k = 0; k < 3; ++k) { pool.join(); }
    const std::size_t zero = pool.lease(0, "a", "gather", here);
    const std::size_t one = pool.lease(1, "b", "gather", here);
    const std::size_t third = pool.lease(3, "c", "gather", here);  // prefers slot 0, then 1; gets 2
    CHECK(pool.slot(third).memory.data() != pool.slot(zero).memory.data());
    CHECK(pool.slot(third).memory.data() != pool.slot(one).memory.data());
    pool.release(one, {});
    CHECK(pool.lease(2, "d", "gather", here) == one);  // prefers slot 2, goes round over 0
}

TEST_CASE("SlotPool: exhaustion names the purpose and every holder, and leaves the pool as it was") {
    Pool pool(64, 2);
    for (int k = 0; k < 4; ++k) { pool.join(); }
    const std::size_t first = pool.lease(0, "blocks.0", "gradient", here);
    pool.lease(1, "blocks.1", "gradient", here);
    for (int again = 0; again < 2; ++again) {
        check_usage_error(
            "'blocks.2': no gradient buffer is free, 2 are held by 'blocks.0', 'blocks.1'; end a window first or "
            "raise RankOptions::in_flight",
            here, [&] { pool.lease(2, "blocks.2", "gradient", here); });
    }
    pool.release(first, {});
    CHECK(pool.lease(2, "blocks.2", "gradient", here) == first);
}

TEST_CASE("SlotPool: a slot remembers the event of its last use") {
    Pool pool(64, 2);
    host::detail::CommandQueue queue;
    pool.join();
    pool.join();
    const std::size_t slot = pool.lease(0, "a", "gather", here);
    CHECK(pool.slot(slot).last_use.point() == 0);
    pool.release(slot, {queue, 41});
    const std::size_t other = pool.lease(1, "b", "gather", here);
    CHECK(pool.slot(other).last_use.point() == 0);
    pool.release(other, {queue, 42});
    CHECK(pool.slot(pool.lease(2, "c", "gather", here)).last_use.point() == 41);
    CHECK(pool.slot(pool.lease(3, "d", "gather", here)).last_use.point() == 42);
}

TEST_CASE("SlotPool: memory stays where it is when another group joins") {
    Pool pool(64, 40);
    pool.join();
    const std::size_t held = pool.lease(0, "a", "gather", here);
    void* const memory = pool.slot(held).memory.data();
    for (int k = 0; k < 39; ++k) { pool.join(); }
    CHECK(pool.slot(held).memory.data() == memory);
    CHECK(pool.lease(0, "b", "gather", here) != held);
}

TEST_CASE("SlotPool: the last group to leave takes the memory with it") {
    live = 0;
    Pool pool(64, 2, counted);
    CHECK(live == 0);
    for (int k = 0; k < 3; ++k) { pool.join(); }
    CHECK(live == 2);
    pool.leave();
    pool.leave();
    CHECK(live == 2);
    pool.leave();
    CHECK(live == 0);
    CHECK(pool.join() == 0);  // numbering starts again
    CHECK(live == 1);
    pool.leave();
}

TEST_CASE("SlotPools: one pool per purpose and kind of group, at a stable address") {
    Pools pools(2);
    auto* const gather = &pools.pool(detail::SlotPurpose::gather, 128, 0);
    auto* const gradient = &pools.pool(detail::SlotPurpose::gradient, 128, 0);
    CHECK(gather != gradient);
    for (std::size_t size = 1; size < 100; ++size) { pools.pool(detail::SlotPurpose::reduce, size * 64, 0); }
    CHECK(&pools.pool(detail::SlotPurpose::gather, 128, 0) == gather);
    CHECK(&pools.pool(detail::SlotPurpose::gradient, 128, 0) == gradient);
    CHECK(&pools.pool(detail::SlotPurpose::gather, 256, 0) != gather);
    CHECK(&pools.pool(detail::SlotPurpose::gather, 128, 1) != gather);
    CHECK(gather->slot_bytes() == 128);
    CHECK(name(detail::SlotPurpose::gather) == "gather");
    CHECK(name(detail::SlotPurpose::gradient) == "gradient");
    CHECK(name(detail::SlotPurpose::reduce) == "reduce");
}

TEST_CASE("SlotLease: addresses repeat in every step of the same schedule") {
    Pools pools(3);
    std::vector<Lease> groups;
    for (int k = 0; k < 7; ++k) { groups.emplace_back(pools, detail::SlotPurpose::gather, std::size_t{512}); }
    std::vector<std::vector<void*>> steps;
    for (int step = 0; step < 3; ++step) {
        steps.emplace_back();
        for (std::size_t k = 0; k < 7; ++k) {  // the next group's slot is taken before this one's is given back
            groups[k].acquire("group", here);
            steps.back().push_back(groups[k].data());
            if (k > 0) { groups[k - 1].release({}); }
        }
        groups.back().release({});
    }
    CHECK(steps[1] == steps[0]);
    CHECK(steps[2] == steps[0]);
    for (std::size_t k = 0; k < 7; ++k) { CHECK(steps[0][k] == steps[0][k % 3]); }
}

TEST_CASE("SlotLease: acquiring twice keeps the slot; releasing without one does nothing") {
    Pools pools(2);
    Lease lease(pools, detail::SlotPurpose::gather, 64);
    CHECK_FALSE(lease.held());
    lease.release({});
    lease.acquire("a", here);
    CHECK(lease.held());
    void* const slot = lease.data();
    lease.acquire("a", here);
    CHECK(lease.data() == slot);
    lease.release({});
    CHECK_FALSE(lease.held());
}

TEST_CASE("SlotLease: exhaustion names the group, the purpose and the holders") {
    Pools pools(1);
    Lease a(pools, detail::SlotPurpose::reduce, 64);
    Lease b(pools, detail::SlotPurpose::reduce, 64);
    Lease other_size(pools, detail::SlotPurpose::reduce, 128);
    Lease other_purpose(pools, detail::SlotPurpose::gather, 64);
    const std::string first = "layers.0";
    const std::string second = "layers.1";
    a.acquire(first, here);
    check_usage_error(
        "'layers.1': no reduce buffer is free, 1 are held by 'layers.0'; end a window first or raise "
        "RankOptions::in_flight",
        here, [&] { b.acquire(second, here); });
    CHECK_FALSE(b.held());
    CHECK_NOTHROW(other_size.acquire(second, here));
    CHECK_NOTHROW(other_purpose.acquire(second, here));
    a.release({});
    CHECK_NOTHROW(b.acquire(second, here));
}

TEST_CASE("SlotLease: the end of a lease gives back its slot and its membership") {
    live = 0;
    Pools pools(2, counted);
    {
        Lease kept(pools, detail::SlotPurpose::gather, 64);
        {
            Lease gone(pools, detail::SlotPurpose::gather, 64);
            gone.acquire("gone", here);
            CHECK(live == 2);
        }
        Lease next(pools, detail::SlotPurpose::gather, 64);
        kept.acquire("kept", here);
        CHECK_NOTHROW(next.acquire("next", here));  // both slots were free
    }
    CHECK(live == 0);
}

TEST_CASE("SlotLease: moves carry the slot along") {
    Pools pools(1);
    Lease a(pools, detail::SlotPurpose::gather, 64);
    a.acquire("a", here);
    void* const slot = a.data();
    Lease b(std::move(a));
    CHECK(b.held());
    CHECK(b.data() == slot);
    CHECK_FALSE(a.held());  // NOLINT(bugprone-use-after-move): that is the question
    Lease c;
    CHECK_FALSE(c.held());
    c = std::move(b);
    CHECK(c.data() == slot);
    c = Lease();
    CHECK_FALSE(c.held());
    Lease d(pools, detail::SlotPurpose::gather, 64);
    CHECK_NOTHROW(d.acquire("d", here));  // the moved lease ended and gave the slot back
}

TEST_CASE("SlotLease: acquire returns the event after which the slot may be written") {
    Pools pools(1);
    host::detail::CommandQueue queue;
    Lease a(pools, detail::SlotPurpose::gather, 64);
    Lease b(pools, detail::SlotPurpose::gather, 64);
    CHECK(a.acquire("a", here).point() == 0);
    a.release({queue, 17});
    CHECK(b.acquire("b", here).point() == 17);
}

}  // namespace slot_pool_test
