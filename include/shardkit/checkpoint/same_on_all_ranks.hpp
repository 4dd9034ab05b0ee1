// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/core/error.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/detail/not_copied.hpp>
#include <shardkit/rank/rank.hpp>
#include <shardkit/spi/ranks.hpp>
#include <shardkit/verbs/all_gather.hpp>

namespace shardkit::detail {

/// An error of a rank in a form that can be sent: the first rank's one is thrown on every rank.
class Failure {
  public:
    /// Makes an object without an error.
    Failure() = default;
    /// Makes one from the exception that is being handled.
    static Failure current() {
        try {
            throw;
        } catch (const FileError& error) {
            return {Kind::file, error.path(), error.what_happened()};
        } catch (const UsageError& error) {
            return {Kind::usage, "", error.what()};
        } catch (const std::invalid_argument& error) {
            return {Kind::argument, "", error.what()};
        } catch (const std::exception& error) { return {Kind::other, "", error.what()}; }
    }

    bool happened() const noexcept { return kind_ != Kind::none; }

    /// Throws the error, with the rank that `first` has found; does nothing if there is none.
    void raise(SourceLocation where) const { raise(concat("rank ", rank_, ": ", what_.data()), where); }
    /// Throws this rank's own error, with the text `before` in front; does nothing if there is none.
    void raise_own(std::string_view before, SourceLocation where) const {
        raise(concat(before, what_.data()), where);
    }
    /// Returns the path and the error.
    std::string text() const {
        return path_[0] == '\0' ? std::string(what_.data()) : concat("'", path_.data(), "' ", what_.data());
    }

  private:
    friend class RankWorld;

    void raise(std::string what, SourceLocation where) const {
        // Errors of a call say its place at their ends, and do so again when they are thrown here.
        const std::string ending = concat(" (", place(where), ")");
        if (kind_ != Kind::other && what.ends_with(ending)) { what.resize(what.size() - ending.size()); }
        switch (kind_) {
            case Kind::none:
                return;
            case Kind::file:
                throw FileError(path_.data(), what, where);
            case Kind::usage:
                throw_usage_error(where, what);
            case Kind::argument:
                throw_invalid_argument(where, what);
            default:
                throw std::runtime_error(what);
        }
    }

    enum class Kind : std::uint32_t { none, file, usage, argument, other };

    Failure(Kind kind, std::string_view path, std::string_view what) : kind_(kind) {
        std::copy_n(path.data(), std::min(path.size(), path_.size() - 1), path_.data());
        std::copy_n(what.data(), std::min(what.size(), what_.size() - 1), what_.data());
    }
    Kind kind_ = Kind::none;
    std::size_t rank_ = 0;
    std::array<char, 1024> path_{};
    std::array<char, 1024> what_{};
};

/// The ranks that save or load together.
class RankWorld : NotCopied {
  public:
    /// All ranks of the rank's world.
    /// @param verb  the purpose: a rank that ends first ends the program with a message that contains it
    RankWorld(Rank& rank, std::string verb) : rank_(rank), verb_(std::move(verb)) {
        RankResources::of(rank_).living.push_back(&verb_);
    }
    /// Some of them, in order, for what only these compare. The others call it too, and get the same.
    RankWorld(const RankWorld& all, List<std::size_t> members) : RankWorld(all.rank_, all.verb_) {
        members_ = std::move(members);
    }
    ~RankWorld() {
        RankResources::of(rank_).living.erase_if([this](const std::string* each) { return each == &verb_; });
    }

    std::size_t rank() const noexcept { return rank_.rank(); }
    std::size_t size() const noexcept { return members_ ? members_->size() : rank_.world_size(); }
    /// Returns the number of one of these ranks in the whole world, by which messages name it.
    std::size_t member(std::size_t rank) const noexcept { return members_ ? (*members_)[rank] : rank; }
    /// Returns the error of an abandoned save of this rank that was not reported yet.
    Failure& untold() { return rank_.kept<Untold>().failure; }
    /// Returns hashes of the latest saves of this rank that a load could read.
    List<std::uint64_t>& proven() { return rank_.kept<Proven>().loads; }
    /// Gathers all ranks' values in rank order; each passes as many. Collective over the world; the host waits.
    template <class T>
    std::vector<T> gather(std::span<const T> mine, SourceLocation where) {
        static_assert(std::is_trivially_copyable_v<T>);
        std::vector<T> all(mine.size() * rank_.world_size());
        gather_bytes(std::as_bytes(mine), std::as_writable_bytes(std::span(all)), where);
        if (!members_) { return all; }
        std::vector<T> theirs;
        for (const std::size_t member : *members_) {
            const auto from = all.begin() + static_cast<std::ptrdiff_t>(member * mine.size());
            theirs.insert(theirs.end(), from, from + static_cast<std::ptrdiff_t>(mine.size()));
        }
        return theirs;
    }
    /// Gathers one value from each rank.
    template <class T>
    std::vector<T> gather(const T& mine, SourceLocation where) {
        return gather(std::span<const T>(&mine, 1), where);
    }
    /// Returns the failure of the first rank that has one, the same on every rank; none if all succeeded. Collective
    /// over the world, so that no rank goes on where another cannot, and all report the same error.
    Failure first(const Failure& own, SourceLocation where) {
        auto all = gather(own, where);
        for (std::size_t rank = 0; rank < all.size(); ++rank) {
            all[rank].rank_ = rank;
            if (all[rank].happened()) { return all[rank]; }
        }
        return {};
    }

  private:
    /// The error of an abandoned save, kept by the rank. If no save has reported it, the end of the rank prints it.
    struct Untold : private NotCopied {
        explicit Untold(const Rank& of) : rank(of.rank()) {}
        ~Untold() {
            if (failure.happened()) {
                std::fprintf(stderr, "shardkit: the end of rank %zu: %s\n", rank, failure.text().c_str());
            }
        }
        std::size_t rank;
        Failure failure;
    };
    struct Proven : private NotCopied {
        explicit Proven(const Rank& /*rank*/) {}
        List<std::uint64_t> loads;
    };

    void gather_bytes(std::span<const std::byte> mine, std::span<std::byte> all, SourceLocation where) {
        if (all.empty()) { return; }
        const auto stream = rank_.compute_stream();
        const auto given = rank_.buffer<std::uint8_t>(mine.size());
        const auto gathered = rank_.buffer<std::uint8_t>(all.size());
        host::AnyKernels::copy_bytes(stream, mine.data(), given.data(), mine.size());
        all_gather(rank_.world(), std::span<const std::uint8_t>(given.span()), gathered.span(), stream, where);
        host::AnyKernels::copy_bytes(stream, gathered.data(), all.data(), all.size());
    }

    Rank& rank_;
    std::string verb_;
    std::optional<List<std::size_t>> members_;
};

/// Runs `work` and returns its exception, if any.
template <class F>
Failure attempt(F&& work) {
    try {
        work();
        return {};
    } catch (...) { return Failure::current(); }
}
/// Runs `work`, which does not communicate, and throws on every rank when it fails on one. Collective over the world.
template <class F>
void together(RankWorld& world, SourceLocation where, F&& work) {
    world.first(attempt(work), where).raise(where);
}

/// Checks that all ranks pass the same `what`, compared by `identity`. Collective over the world.
/// @throws std::invalid_argument on every rank, with the values of two ranks that differ
inline void require_same(RankWorld& world, std::string_view verb, std::string_view what, std::uint64_t identity,
                         SourceLocation where) {
    struct Meant {
        std::uint64_t identity = 0;
        std::array<char, 256> what{};

        bool operator==(const Meant& other) const noexcept { return identity == other.identity; }
    } own;
    own.identity = identity;
    const std::string_view end = what.substr(what.size() - std::min(what.size(), own.what.size() - 1));
    std::copy_n(end.data(), end.size(), own.what.data());
    const auto all = world.gather(own, where);
    const std::size_t rank = first_apart(all);
    if (rank == all.size()) { return; }
    // The differing part of many names or orders may not fit: then the texts may be the same.
    const bool alike = std::string_view(all[0].what.data()) == all[rank].what.data();
    throw_invalid_argument(where, verb, ": rank ", world.member(0), " means '", all[0].what.data(), "', rank ",
                           world.member(rank), " '", all[rank].what.data(),
                           alike ? "' with other names or orders" : "'",
                           ": expected the same on every rank, in the same order");
}

/// Checks that ranks have updated the groups equally: otherwise a save would write a mixture. Collective over the
/// world.
/// @throws UsageError, on every rank, with what differs and the values of two ranks
template <class Groups>
void require_same_updates(RankWorld& world, std::string_view verb, const Groups& groups, SourceLocation where) {
    StatementHash mine = 0;
    for (const auto& group : groups) { mine = statement_hash(mine, group->group().statements().updates()); }
    const std::size_t other = first_apart(world.gather(mine, where));
    if (other == world.size()) { return; }
    Statements own;
    for (const auto& group : groups) {
        for (Statement& one : group->group().statements().list_updates()) { own.push_back(std::move(one)); }
    }
    const auto [first, second] =
        stated_apart(0, other, where, [&](std::size_t i) { return world.gather(StatementRecord(own, i), where); });
    throw_usage_error(where, verb, ": the ranks disagree in what was updated before: rank ", world.member(0),
                      " saves", first, ", rank ", world.member(other), " saves", second);
}

}  // namespace shardkit::detail
