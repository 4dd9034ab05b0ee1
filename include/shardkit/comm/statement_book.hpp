// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/comm/statement.hpp>
#include <shardkit/core/finite.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/concat.hpp>

namespace shardkit::detail {

/// Holds what does not change from step to step, with its hash: an optimizer's betas, say.
struct KeptStatements {
    StatementHash hash = 0;
    Statements statements;
};
/// Keeps what is stated as long as its owner lives.
using StatementsHandle = std::shared_ptr<const KeptStatements>;
inline StatementHash hash_of(const StatementsHandle& kept) noexcept { return kept == nullptr ? 0 : kept->hash; }

/// Holds what a step's gradients are divided by.
struct StatedGradients {
    double divisor = 0;
    StatementHash loss_scale = 0;  ///< its options'; 0: none
    std::uint64_t uses = 0;        ///< of the loss scale, this one included
    SourceLocation where{};
    StatementHash assumed = 0;  ///< of sums that the program made and every rank holds; 0: none
    double assumed_sum = 0;     ///< of what that is of

    StatementHash hash() const noexcept {
        const StatementHash made = statement_hash(
            statement_hash(statement_hash(1, std::bit_cast<std::uint64_t>(divisor)), loss_scale), uses);
        return assumed == 0 ? made : statement_hash(made, assumed);
    }
};

/// Describes one step of an optimizer.
struct StatedStep {
    std::uint64_t number = 0;  ///< of this optimizer's steps, from 1
    double learning_rate = 0;
    double max_norm = 0;          ///< infinite: gradients are not clipped
    StatementHash optimizer = 0;  ///< what it is, and its other hyper-parameters
    StatementHash gradients = 0;  ///< of which gradients
    SourceLocation where{};

    StatementHash hash() const noexcept {
        const StatementHash numbers = statement_hash(statement_hash(statement_hash(2, number), optimizer), gradients);
        return statement_hash(statement_hash(numbers, std::bit_cast<std::uint64_t>(learning_rate)),
                              std::bit_cast<std::uint64_t>(max_norm));
    }
};

/// Holds what one group states beside its calls.
struct StatedGroup {
    const std::string* path = nullptr;  ///< which the journal keeps
    std::uint64_t updates = 0;          ///< their number
    StatementHash step = 0;             ///< the last one's
    StatementHash choices = 0;          ///< what its ParamGroups chose in it
    StatementHash before = 0;           ///< of the updates before the last one; before all, of the path
    StatementHash gradients = 0;
    StatementHash values = 0;  ///< of replicas, as they were given last

    /// Adds one more update.
    void add_update(StatementHash with, StatementHash chosen) noexcept {
        if (updates > 0) { before = updates_hash(); }
        ++updates;
        step = with;
        choices = chosen;
    }
    StatementHash updates_hash() const noexcept { return updates == 0 ? 0 : statement_hash(before + choices, step); }
    /// Returns what a call carries between ranks that hold other values, and between replicas.
    StatementHash plain_hash() const noexcept {
        return (gradients | updates) == 0 ? 0 : statement_hash(gradients, updates_hash());
    }
    StatementHash replica_hash() const noexcept {
        return values == 0 ? plain_hash() : statement_hash(plain_hash(), values);
    }
};

/// Remembers what one group has stated lately.
struct RecentlyStated {
    std::array<StatedGroup, 4> entries;
    std::size_t noted = 0;
};

/// Remembers what a rank has stated lately, by the hash that its calls carried: what an error's text is made of.
/// Written by the rank's thread; read by whoever says why ranks disagree, a stream's thread or a peer.
/// Memory:  8 kB, 300 bytes for each group, and what groups and optimizers keep
/// A template, so that a file compiles of it what it uses.
template <class>
class BasicStatementBook {
  public:
    BasicStatementBook() = default;
    BasicStatementBook(const BasicStatementBook&) = delete;
    BasicStatementBook& operator=(const BasicStatementBook&) = delete;

    /// Returns where one more group notes what it states.
    std::shared_ptr<RecentlyStated> add_group() {
        auto group = std::make_shared<RecentlyStated>();
        const Hold hold(busy_);
        append(groups_, group);
        gradients_.grow(48);
        steps_.grow(48);
        norm_.reserve(groups_.capacity());
        return group;
    }
    /// Remembers statements while someone keeps them, and some time after.
    StatementsHandle keep(StatementHash hash, Statements statements) {
        auto kept = std::make_shared<const KeptStatements>(KeptStatements{hash, std::move(statements)});
        const Hold hold(busy_);
        append(kept_, kept);
        lately_kept_.grow(32);
        lately_kept_.add(kept);
        return kept;
    }
    StatementsHandle keep(Statements statements) {
        const StatementHash hash = statement_hash(statements);
        return keep(hash, std::move(statements));
    }

    void note(StatementHash hash, const StatedGradients& gradients) { note(gradients_, hash, gradients); }
    void note(StatementHash hash, const StatedStep& step) { note(steps_, hash, step); }
    /// Notes what a group's next calls carry.
    void note(RecentlyStated& group, const StatedGroup& stated) {
        const Hold hold(busy_);
        group.entries[group.noted++ % group.entries.size()] = stated;
    }
    /// Notes what a norm's call carries: its gradients, and its groups' updates, whose place is taken.
    void note_norm(StatementHash hash, StatementHash gradients, std::vector<StatementHash>& updates) {
        const Hold hold(busy_);
        norm_hash_ = hash;
        norm_gradients_ = gradients;
        norm_.swap(updates);
    }

    /// Returns everything that `hash` is of, in an order that is the same on every rank; nothing when that is not
    /// known any more.
    Statements list(StatementHash hash) const {
        Statements all;
        if (hash == 0) { return {{"updates", "0", {}}}; }
        const Hold hold(busy_);
        if (hash == norm_hash_) {
            for (const StatementHash updates : norm_) { add_updates(updates, all); }
            add_gradients(norm_gradients_, all);
            return all;
        }
        const auto found = find(
            [hash](const StatedGroup& group) { return group.replica_hash() == hash || group.plain_hash() == hash; });
        if (!found) {
            add_updates(hash, all);
            return all;
        }
        add_updates(found->updates_hash(), all);
        add_gradients(found->gradients, all);
        if (found->replica_hash() == hash) { add_kept(found->values, all); }
        return all;
    }

  private:
    /// Locks what the rank's thread and a rare reader both use, one that builds an error's text.
    class Hold {
      public:
        explicit Hold(std::atomic_flag& busy) noexcept : busy_(busy) {
            while (busy_.test_and_set(std::memory_order_acquire)) {}
        }
        Hold(const Hold&) = delete;
        Hold& operator=(const Hold&) = delete;
        ~Hold() { busy_.clear(std::memory_order_release); }

      private:
        std::atomic_flag& busy_;
    };
    /// Does what number_text does, without <charconv>.
    static std::string text_of(double number) {
        char digits[40];
        for (const int precision : {15, 16, 17}) {
            std::snprintf(digits, sizeof digits, "%.*g", precision, number);
            if (std::strtod(digits, nullptr) == number) { break; }
        }
        return digits;
    }

    /// Keeps the last `size` of some things.
    template <class T>
    class Ring {
      public:
        void grow(std::size_t size) {
            if (size > entries_.size()) { entries_.resize(size); }
        }
        void add(const T& entry) {
            if (!entries_.empty()) { entries_[added_++ % entries_.size()] = entry; }
        }
        const std::vector<T>& entries() const noexcept { return entries_; }

      private:
        std::vector<T> entries_;
        std::uint64_t added_ = 0;
    };
    template <class T>
    struct ByHash : Ring<std::pair<StatementHash, T>> {
        const T* find(StatementHash hash) const noexcept {
            for (const auto& [known, entry] : this->entries()) {
                if (known == hash) { return &entry; }
            }
            return nullptr;
        }
    };

    template <class T>
    void note(ByHash<T>& ring, StatementHash hash, const T& entry) {
        const Hold hold(busy_);
        ring.add({hash, entry});
    }

    void add_gradients(StatementHash hash, Statements& all) const {
        const StatedGradients* const gradients = gradients_.find(hash);
        if (gradients == nullptr) { return; }
        all.push_back({"divisor", text_of(gradients->divisor), gradients->where});
        if (gradients->assumed != 0) {
            all.push_back({"assumed reduced gradients",
                           concat("of sum ", text_of(gradients->assumed_sum), " (hash ", gradients->assumed, ")"),
                           gradients->where});
        }
        if (gradients->loss_scale == 0) {
            all.push_back({"loss scale", "none", gradients->where});
        } else {
            add_kept(gradients->loss_scale, all);
            all.push_back({"use of the loss scale", concat("number ", gradients->uses), gradients->where});
        }
    }
    void add_updates(StatementHash hash, Statements& all) const {
        if (hash == 0) {
            all.push_back({"updates", "0", {}});
            return;
        }
        const auto updates = find([hash](const StatedGroup& group) { return group.updates_hash() == hash; });
        if (!updates) { return; }
        const StatedStep* const step = steps_.find(updates->step);
        const SourceLocation where = step == nullptr ? SourceLocation{} : step->where;
        all.push_back({"updates", concat(updates->updates, " of ", *updates->path), where});
        if (step != nullptr) {
            add_kept(step->optimizer, all);
            add_gradients(step->gradients, all);
            all.push_back({"learning rate", text_of(step->learning_rate), where});
            all.push_back({"max_norm", is_finite(step->max_norm) ? text_of(step->max_norm) : "none", where});
            all.push_back({"step", concat("number ", step->number, " of the optimizer"), where});
        }
        if (updates->choices == 0) { all.push_back({"ParamGroups", "none", where}); }
        add_kept(updates->choices, all);
        all.push_back({"earlier updates", concat("of ", *updates->path, " (hash ", updates->before, ")"), {}});
    }
    /// Returns what some group has noted of which `is` holds.
    template <class F>
    std::optional<StatedGroup> find(const F& is) const {
        for (const auto& weak : groups_) {
            const auto group = weak.lock();
            if (group == nullptr) { continue; }
            for (const StatedGroup& stated : group->entries) {
                if (stated.path != nullptr && is(stated)) { return stated; }
            }
        }
        return std::nullopt;
    }
    /// Forgets those that nobody keeps, now and then.
    template <class T>
    static void append(std::vector<std::weak_ptr<T>>& all, const std::shared_ptr<T>& one) {
        if (all.size() == all.capacity()) {
            std::erase_if(all, [](const auto& weak) { return weak.expired(); });
            all.reserve(2 * all.size() + 1);
        }
        all.push_back(one);
    }
    void add_kept(StatementHash hash, Statements& all) const {
        if (hash == 0) { return; }
        for (const auto& weak : kept_) {
            const StatementsHandle one = weak.lock();
            if (one == nullptr || one->hash != hash) { continue; }
            all.insert(all.end(), one->statements.begin(), one->statements.end());
            return;
        }
    }

    mutable std::atomic_flag busy_;
    std::vector<std::weak_ptr<RecentlyStated>> groups_;
    ByHash<StatedGradients> gradients_;
    ByHash<StatedStep> steps_;
    StatementHash norm_hash_ = 0;
    StatementHash norm_gradients_ = 0;
    std::vector<StatementHash> norm_;
    std::vector<std::weak_ptr<const KeptStatements>> kept_;
    Ring<StatementsHandle> lately_kept_;
};
using StatementBook = BasicStatementBook<void>;

}  // namespace shardkit::detail
