// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <shardkit/backend/host/command_queue.hpp>
#include <shardkit/backend/threads/communicator.hpp>
#include <shardkit/backend/threads/launch_options.hpp>
#include <shardkit/backend/threads/world.hpp>
#include <shardkit/core/counts.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/human_bytes.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/detail/owned.hpp>
#include <shardkit/memory/host_buffer.hpp>
#include <shardkit/memory/memory_error.hpp>

namespace shardkit::threads {

namespace detail {

/// The function that every rank runs, without its type: the code that launches it is compiled once.
struct RankBody {
    const void* object;
    void (*call)(const void* object, Communicator& world);
};

/// @pre `body` outlives what it returns
template <class F>
RankBody body_of(const F& body) noexcept {
    return {&body, [](const void* object, Communicator& world) { (*static_cast<const F*>(object))(world); }};
}

/// Runs the body of a rank's thread. It catches all exceptions, and tells the rank's peers how it ended.
[[gnu::cold]] inline std::exception_ptr run_rank(World& world, std::size_t rank, const RankBody& body) noexcept {
    try {
        Communicator everybody(std::make_shared<const RankVerbs>(world, world.world_group(), rank, "world"));
        body.call(body.object, everybody);
        world.drain(rank);
        world.rank_returned(rank);
        return nullptr;
    } catch (const PeerError& error) {
        world.rank_stopped(rank, error);
        return std::current_exception();
    } catch (const std::exception& error) {
        world.rank_failed(rank, error.what());
        return std::current_exception();
    } catch (...) {
        world.rank_failed(rank, "an exception that is no std::exception");
        return std::current_exception();
    }
}

using Errors = shardkit::detail::List<std::exception_ptr>;  // by rank

inline bool is_peer_error(const std::exception_ptr& error) noexcept {
    try {
        std::rethrow_exception(error);
    } catch (const PeerError&) { return true; } catch (...) {
        return false;
    }
}

/// Returns what that many ranks cost, as text for an error.
[[gnu::cold]] inline std::string cost_of(std::size_t ranks, const LaunchOptions& options) {
    std::size_t stack = 0;
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) == 0) {
        pthread_attr_getstacksize(&attributes, &stack);
        pthread_attr_destroy(&attributes);
    }
    const auto bytes = [](std::size_t count) { return shardkit::detail::human_bytes(ByteCount(count)); };
    const std::size_t threads = threads_of_rank(options.overlap);
    const std::size_t queues = (threads - 1) * host::detail::CommandQueue::ring_bytes();
    const std::size_t memory = sizeof(RankState) + threads * sizeof(Member) + queues;  // one for each thread's group
    const std::size_t channels = threads * sizeof(Channel);
    return shardkit::detail::concat(
        ranks, " ranks: each takes ",
        threads == 1 ? "a thread with " : shardkit::detail::concat(threads, " threads, each with "), bytes(stack),
        " of address space for its stack, ", bytes(memory), " of memory and ", channels, " B for each of the ranks, ",
        bytes(channels * ranks + memory));
}

/// Makes what a launch shares. If there is no memory for it, the error says what its ranks cost.
[[gnu::cold]] inline shardkit::detail::Owned<World> make_world(std::size_t ranks, const LaunchOptions& options,
                                                               SourceLocation where) {
    const auto too_many = [&] {
        return MemoryError("threads::launch", sizeof(Channel) * ranks * ranks, cost_of(ranks, options));
    };
    if (ranks > std::size_t{1} << 28U) { throw too_many(); }  // what each pair shares cannot be counted in bytes
    try {
        return shardkit::detail::Owned<World>(new World(ranks, options, where));
    } catch (const std::bad_alloc&) { throw too_many(); }
}

/// Whether the threads of a launch have begun: if one cannot be made, none does.
enum class Begun : std::uint32_t { not_yet, all, none };

/// What a rank's thread begins with, in place of captures: all of the library's threads are of one type.
struct Start {
    World& world;
    std::atomic<Begun>& begun;
    const RankBody& body;
    std::exception_ptr& error;
    std::size_t rank;

    static void run(void* given) {
        const Start& start = *static_cast<const Start*>(given);
        start.begun.wait(Begun::not_yet, std::memory_order_acquire);
        if (start.begun.load(std::memory_order_acquire) == Begun::none) { return; }
        start.error = run_rank(start.world, start.rank, start.body);
    }
};

/// Implements launch_and_collect(), instantiated for RankBody alone.
template <class Body>
[[gnu::cold]] Errors collect(std::size_t ranks, Body body, const LaunchOptions& options, SourceLocation where) {
    const shardkit::detail::Owned<World> made = make_world(ranks, options, where);
    World& world = *made;
    Errors errors(ranks);
    std::atomic begun{Begun::not_yet};
    shardkit::detail::List<Start> starts;
    shardkit::detail::List<std::thread> threads;
    starts.reserve(ranks);
    threads.reserve(ranks);
    const auto end = [&](Begun now) noexcept {
        begun.store(now, std::memory_order_release);
        begun.notify_all();
        if (now == Begun::all) { world.watch(); }
        for (std::thread& thread : threads) { thread.join(); }
    };
    try {
        for (std::size_t rank = 0; rank < ranks; ++rank) {
            world.start_streams(rank);
            starts.push_back({world, begun, body, errors[rank], rank});
            threads.emplace_back(&Start::run, static_cast<void*>(&starts.back()));
        }
    } catch (const std::system_error& error) {
        end(Begun::none);
        throw std::system_error(error.code(), shardkit::detail::concat("threads::launch: thread ", threads.size(),
                                                                       " of ", cost_of(ranks, options)));
    } catch (...) {
        end(Begun::none);
        throw;
    }
    end(Begun::all);
    return errors;
}
/// Implements launch(), likewise.
template <class Body>
[[gnu::cold]] void collect_and_throw(std::size_t ranks, Body body, const LaunchOptions& options,
                                     SourceLocation where) {
    const Errors errors = collect(ranks, body, options, where);
    for (const bool peer_errors : {false, true}) {
        for (const std::exception_ptr& error : errors) {
            if (error != nullptr && is_peer_error(error) == peer_errors) { std::rethrow_exception(error); }
        }
    }
}

}  // namespace detail

/// Runs `f(world)` on `ranks` new threads, where `world` is the rank's Communicator over all of them, and waits for
/// all. Returns the exception of each rank, null if it returned. The ranks share `f`: it is called on all threads at
/// once. A rank that throws, or returns while others wait for it, ends the others with a PeerError.
/// @throws std::invalid_argument for zero ranks; std::system_error when a thread cannot be made and MemoryError when
///         there is no memory for so many, both with what a rank costs (`f` has not run then)
template <class F>
std::vector<std::exception_ptr> launch_and_collect(std::size_t ranks, F&& f, const LaunchOptions& options = {},
                                                   SourceLocation where = SourceLocation::current()) {
    const auto body = [&](auto& world) { f(world); };
    const detail::Errors errors = detail::collect(ranks, detail::body_of(body), options, where);
    return {errors.begin(), errors.end()};
}

/// Launches likewise and throws the first error: the exception of the lowest rank that failed by itself, unchanged;
/// if all failures are PeerErrors, that of the lowest rank.
template <class F>
void launch(std::size_t ranks, F&& f, const LaunchOptions& options = {},
            SourceLocation where = SourceLocation::current()) {
    const auto body = [&](auto& world) { f(world); };
    detail::collect_and_throw(ranks, detail::body_of(body), options, where);
}

}  // namespace shardkit::threads
