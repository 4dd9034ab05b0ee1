// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/comm/stated_step.hpp>
#include <shardkit/core/finite.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/fnv.hpp>
#include <shardkit/detail/list.hpp>
#include <shardkit/detail/not_copied.hpp>

// How ranks find out that they disagree. A rank states facts (a divisor, a learning rate) that must be the same on
// every rank. A hash of these statements travels with a call that the ranks make anyway, or is gathered at
// construction or a save. If hashes differ, each rank looks its statements up in its StatementBook, and the ranks
// gather them one by one until two differ.

namespace shardkit::detail {

/// A fact that a rank states and that must be the same on all ranks: "learning rate" "0.001".
struct Statement {
    std::string name;
    std::string value;
    SourceLocation where{};  ///< an empty file: no particular place
};
/// The statements of a rank, in an order that is the same on every rank.
using Statements = List<Statement>;

/// Statements that do not change from step to step, with their hash: for example an optimizer's betas.
struct KeptStatements {
    StatementHash hash = 0;
    Statements statements;
};
/// A handle that keeps statements in the book as long as it lives.
using StatementsHandle = std::shared_ptr<const KeptStatements>;
inline StatementHash hash_of(const StatementsHandle& kept) noexcept { return kept ? kept->hash : 0; }

/// The statements of a rank about one group, beside the group's calls.
struct StatedGroup {
    const std::string* path = nullptr;  ///< kept by the journal
    std::uint64_t updates = 0;          ///< number of updates
    StatementHash step = 0;             ///< StatedStep::update_hash of the last update
    StatementHash choices = 0;          ///< hash of what its ParamGroups chose in the last update
    StatementHash before = 0;           ///< hash of all updates before the last one, which begins with the path
    StatementHash gradients = 0;        ///< StatedStep::gradients_hash
    StatementHash values = 0;           ///< hash of replicas' values when they were last given

    /// Adds one update.
    void add_update(StatementHash with, StatementHash chosen) noexcept {
        if (updates > 0) { before = updates_hash(); }
        ++updates;
        step = with;
        choices = chosen;
    }
    StatementHash updates_hash() const noexcept { return updates == 0 ? 0 : statement_hash(before + choices, step); }
    /// Returns the hash that a call carries between ranks with different values.
    StatementHash plain_hash() const noexcept {
        return (gradients | updates) == 0 ? 0 : statement_hash(gradients, updates_hash());
    }
    /// Returns the hash that a call carries between replicas.
    StatementHash replica_hash() const noexcept {
        return values == 0 ? plain_hash() : statement_hash(plain_hash(), values);
    }
};
/// The latest statements about one group.
struct RecentlyStated {
    std::array<StatedGroup, 4> entries;
    std::size_t noted = 0;
};

/// The latest statements of a rank, which it can look up by their hash to build an error text.
/// The rank's thread writes it. Whoever reports a disagreement reads it: a stream's thread or a peer.
/// Memory:  8 kB, 300 bytes for each group, and what groups and optimizers keep
class StatementBook : NotCopied {
  public:
    /// Returns the place for the statements of one more group.
    std::shared_ptr<RecentlyStated> add_group() {
        const Hold hold(busy_);
        norm_.reserve(groups_.size() + 1);
        return add(groups_, std::make_shared<RecentlyStated>(), 0);
    }
    /// Keeps statements while their handle lives, and for some time after.
    StatementsHandle keep(StatementHash hash, Statements statements) {
        const Hold hold(busy_);
        return add(kept_, std::make_shared<const KeptStatements>(KeptStatements{hash, std::move(statements)}), 32);
    }
    StatementsHandle keep(Statements statements) {
        Fnv fnv;
        for (const Statement& one : statements) {
            fnv.add(one.name);
            fnv.add(one.value);
        }
        return keep(statement_hash(0, fnv.hash), std::move(statements));
    }

    void note(const StatedStep& step) {
        const Hold hold(busy_);
        steps_[noted_++ % steps_.size()] = step;
    }
    /// Notes the statements of a group's next calls.
    void note(RecentlyStated& group, const StatedGroup& stated) {
        const Hold hold(busy_);
        group.entries[group.noted++ % group.entries.size()] = stated;
    }
    /// Notes the statements of a norm's call: its gradients, and the updates of its groups, whose memory it swaps.
    void note_norm(StatementHash hash, StatementHash gradients, std::vector<StatementHash>& updates) {
        const Hold hold(busy_);
        norm_hash_ = hash;
        norm_gradients_ = gradients;
        norm_.swap(updates);
    }

    /// Returns all statements behind `hash`, in an order that is the same on every rank; empty when they are no
    /// longer known.
    [[gnu::cold]] Statements list(StatementHash hash) const {
        Statements all;
        const Hold hold(busy_);
        if (hash != 0 && hash == norm_hash_) {
            for (const StatementHash updates : norm_) { add_updates(updates, all); }
            add_gradients(norm_gradients_, all);
        } else if (const StatedGroup* const group = find_group(
                       [hash](const auto& one) { return one.replica_hash() == hash || one.plain_hash() == hash; })) {
            add_updates(group->updates_hash(), all);
            add_gradients(group->gradients, all);
            if (group->replica_hash() == hash) { add_kept(group->values, all); }
        } else {
            add_updates(hash, all);
        }
        return all;
    }

  private:
    /// Holds the spin lock between the rank and the rare reader that builds an error text.
    class Hold : NotCopied {
      public:
        explicit Hold(std::atomic_flag& busy) noexcept : busy_(busy) {
            while (busy_.test_and_set(std::memory_order_acquire)) {}
        }
        ~Hold() { busy_.clear(std::memory_order_release); }

      private:
        std::atomic_flag& busy_;
    };
    /// Returns a number with the fewest digits that identify it. <charconv> would cost a tenth of a light header.
    [[gnu::cold]] static std::string text_of(double number) {
        char digits[40];
        for (const int precision : {15, 16, 17}) {
            std::snprintf(digits, sizeof digits, "%.*g", precision, number);
            if (std::strtod(digits, nullptr) == number) { break; }
        }
        return digits;
    }
    /// Appends `one`. Without room, it first removes entries that nobody else keeps, except the last `spared`.
    template <class T>
    static std::shared_ptr<T> add(List<std::shared_ptr<T>>& all, std::shared_ptr<T> one, std::size_t spared) {
        if (all.full()) {
            const auto* const end = all.end() - std::min(spared, all.size());
            all.erase_if([&](const auto& old) { return &old < end && old.use_count() == 1; });
            all.reserve(2 * all.size() + 1);
        }
        all.push_back(one);
        return one;
    }

    /// Returns the noted statements of some group for which `is` holds; null if there are none.
    template <class F>
    const StatedGroup* find_group(const F& is) const {
        for (const auto& group : groups_) {
            for (const StatedGroup& stated : group->entries) {
                if (stated.path != nullptr && is(stated)) { return &stated; }
            }
        }
        return nullptr;
    }
    const StatedStep* find_step(StatementHash (StatedStep::*member)() const noexcept, StatementHash hash) const {
        for (const StatedStep& step : steps_) {
            if ((step.*member)() == hash) { return &step; }
        }
        return nullptr;
    }
    [[gnu::cold]] void add_kept(StatementHash hash, Statements& all) const {
        for (const StatementsHandle& one : kept_) {
            if (one->hash != hash) { continue; }
            all.append(one->statements.begin(), one->statements.end());
            return;
        }
    }
    [[gnu::cold]] void add_gradients(StatementHash hash, Statements& all) const {
        const StatedStep* const step = find_step(&StatedStep::gradients_hash, hash);
        if (step == nullptr) { return; }
        const SourceLocation where = step->reduced;
        all.push_back({"divisor", text_of(step->divisor), where});
        if (step->other_divisor != 0) { all.push_back({"second divisor", text_of(step->other_divisor), where}); }
        if (step->assumed != 0) {
            all.push_back({"assumed reduced gradients",
                           concat("of sum ", text_of(step->assumed_sum), " (hash ", step->assumed, ")"), where});
        }
        if (step->loss_scale == 0) {
            all.push_back({"loss scale", "none", where});
        } else {
            add_kept(step->loss_scale, all);
            all.push_back({"use of the loss scale", concat("number ", step->uses), where});
        }
    }
    [[gnu::cold]] void add_updates(StatementHash hash, Statements& all) const {
        if (hash == 0) {
            all.push_back({"updates", "0", {}});
            return;
        }
        const StatedGroup* const group = find_group([hash](const auto& one) { return one.updates_hash() == hash; });
        if (group == nullptr) { return; }
        const StatedStep* const step = find_step(&StatedStep::update_hash, group->step);
        const SourceLocation where = step == nullptr ? SourceLocation{} : step->updated;
        all.push_back({"updates", concat(group->updates, " of ", *group->path), where});
        if (step != nullptr) {
            add_gradients(step->gradients_hash(), all);
            all.push_back({"max_norm", is_finite(step->max_norm) ? text_of(step->max_norm) : "none", where});
        }
        List<const StatedStep*> sharing;  // of optimizers that share the step, the last one first
        for (const StatedStep* each = step; each != nullptr;) {
            sharing.push_back(each);
            each = each->shared == 0 ? nullptr : find_step(&StatedStep::update_hash, each->shared);
        }
        for (std::size_t i = sharing.size(); i > 0; --i) {
            const StatedStep& each = *sharing[i - 1];
            const std::string whose = sharing.size() == 1 ? "" : concat(" of optimizer ", sharing.size() - i);
            const std::size_t first = all.size();
            add_kept(each.optimizer, all);
            all.push_back({"learning rate", text_of(each.learning_rate), where});
            all.push_back({"step", concat("number ", each.number, " of the optimizer"), where});
            for (std::size_t s = first; s < all.size(); ++s) { all[s].name += whose; }
        }
        if (group->choices == 0) { all.push_back({"ParamGroups", "none", where}); }
        add_kept(group->choices, all);
        all.push_back({"earlier updates", concat("of ", *group->path, " (hash ", group->before, ")"), {}});
    }

    mutable std::atomic_flag busy_;
    List<std::shared_ptr<RecentlyStated>> groups_;
    List<StatementsHandle> kept_;
    std::array<StatedStep, 64> steps_{};
    std::size_t noted_ = 0;
    StatementHash norm_hash_ = 0;
    StatementHash norm_gradients_ = 0;
    std::vector<StatementHash> norm_;
};

/// One statement in a form that can be sent to other ranks, for an error text. Past the last statement it is empty.
class StatementRecord {
  public:
    StatementRecord() = default;
    StatementRecord(const Statements& all, std::size_t number) noexcept {
        if (number >= all.size()) { return; }
        const Statement& one = all[number];
        one.name.copy(name_, sizeof name_ - 1);
        one.value.copy(value_, sizeof value_ - 1);
        std::strncpy(file_, one.where.file, sizeof file_ - 1);
        line_ = one.where.line;
    }

    bool none() const noexcept { return name_[0] == '\0'; }
    bool equals(const StatementRecord& other) const noexcept {
        return std::strcmp(name_, other.name_) == 0 && std::strcmp(value_, other.value_) == 0;
    }
    /// Returns the end of "rank 0 calls ...".
    /// @param call  location that need not be repeated for the statement
    [[gnu::cold]] std::string text(const StatementRecord& other, SourceLocation call) const {
        if (none()) { return concat(" without ", other.name_); }
        const bool said = file_[0] == '\0' || (line_ == call.line && std::string_view(call.file).starts_with(file_));
        return concat(" with ", name_, " ", value_, said ? "" : concat(" (stated at ", file_, ":", line_, ")"));
    }

  private:
    char name_[104] = {};
    char value_[88] = {};
    char file_[104] = {};
    std::uint32_t line_ = 0;
};

/// Returns the statements of ranks a and b where they first differ, each as the end of "rank 0 calls ...".
/// `gather(i)` must return every rank's statement number i, by rank.
/// @param call  location that need not be repeated for the statements
template <class Gather>
[[gnu::cold]] std::pair<std::string, std::string> stated_apart(std::size_t a, std::size_t b, SourceLocation call,
                                                               const Gather& gather) {
    for (std::size_t i = 0;; ++i) {
        const auto all = gather(i);
        if (all[a].none() && all[b].none()) {
            constexpr const char* forgotten = " with what it no longer knows to have stated";
            return {forgotten, forgotten};
        }
        if (!all[a].equals(all[b])) { return {all[a].text(all[b], call), all[b].text(all[a], call)}; }
    }
}

/// Returns the text that two ranks called different things. `place` is for example " in call 7".
[[gnu::cold]] inline std::string disagreement(std::string_view place, std::size_t a, std::string_view a_calls,
                                              std::size_t b, std::string_view b_calls) {
    return concat("the ranks disagree", place, ": rank ", a, " calls ", a_calls, ", rank ", b, " calls ", b_calls);
}

/// Returns the first rank whose values differ from those of rank 0, or the number of ranks when all agree. `all`
/// holds `each` values per rank.
template <class All>
std::size_t first_apart(const All& all, std::size_t each = 1) noexcept {
    std::size_t i = 0;
    while (i < all.size() && all[i] == all[i % each]) { ++i; }
    return i / each;
}

}  // namespace shardkit::detail
