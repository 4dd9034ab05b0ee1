// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/concat.hpp>
#include <shardkit/detail/fnv.hpp>

namespace shardkit::detail {

/// Holds one thing that a rank states beside its calls, and that all ranks must state alike: "learning rate" "0.001".
struct Statement {
    std::string name;
    std::string value;
    SourceLocation where{};  ///< no file: nowhere in particular
};

/// Lists what a rank states beside one call, in an order that is the same on every rank.
using Statements = std::vector<Statement>;
/// Hashes what is stated; 0: nothing. Ranks compare it within each call.
using StatementHash = std::uint64_t;

/// Returns the hash of one word more than what `before` is the hash of. Never 0.
/// Source: Fowler, Noll, Vo: FNV-1a, by words
constexpr StatementHash statement_hash(StatementHash before, std::uint64_t word) noexcept {
    StatementHash hash = (before ^ 0xcbf29ce484222325ULL ^ word) * 0x100000001b3ULL;
    hash ^= hash >> 32U;
    return hash == 0 ? 1 : hash;
}
inline StatementHash statement_hash(const Statements& statements) noexcept {
    if (statements.empty()) { return 0; }
    Fnv fnv;
    for (const Statement& one : statements) {
        fnv.add(one.name);
        fnv.add(one.value);
    }
    return statement_hash(0, fnv.hash);
}

/// Holds some of a rank's statements as they travel to other ranks, for an error's text. A template, so that a file
/// compiles of it what it uses.
template <class>
class BasicStatementPage {
  public:
    static constexpr std::size_t size = 6;

    BasicStatementPage() = default;
    /// Makes page number `page` of `all`.
    BasicStatementPage(const Statements& all, std::size_t page) noexcept {
        const std::size_t first = std::min(page * size, all.size());
        count_ = std::min(size, all.size() - first);
        last_ = first + count_ == all.size() ? 1 : 0;
        for (std::size_t i = 0; i < count_; ++i) {
            const Statement& one = all[first + i];
            Record& record = records_[i];
            one.name.copy(record.name, sizeof record.name - 1);
            one.value.copy(record.value, sizeof record.value - 1);
            std::strncpy(record.file, one.where.file, sizeof record.file - 1);
            record.line = one.where.line;
        }
    }

    /// Returns what two ranks state where they first differ, each as the end of "rank 0 calls ...": none when they do
    /// not within these pages and there are more.
    /// @param where  of the call: what was stated there is not said twice
    static std::optional<std::pair<std::string, std::string>> apart(const BasicStatementPage& a,
                                                                    const BasicStatementPage& b,
                                                                    SourceLocation where) {
        for (std::size_t i = 0; i < std::max(a.count_, b.count_); ++i) {
            if (i < a.count_ && i < b.count_ && a.records_[i].equals(b.records_[i])) { continue; }
            const auto text = [&](const BasicStatementPage& mine, const BasicStatementPage& other) {
                return i < mine.count_ ? mine.records_[i].text(where) : concat(" without ", other.records_[i].name);
            };
            return std::pair(text(a, b), text(b, a));
        }
        if (a.last_ == 0 && b.last_ == 0) { return std::nullopt; }
        constexpr const char* forgotten = " with what it no longer knows to have stated";
        return std::pair<std::string, std::string>(forgotten, forgotten);
    }

  private:
    struct Record {
        char name[104] = {};
        char value[88] = {};
        char file[104] = {};
        std::uint32_t line = 0;

        bool equals(const Record& other) const noexcept {
            return std::strcmp(name, other.name) == 0 && std::strcmp(value, other.value) == 0;
        }
        std::string text(SourceLocation call) const {
            const bool said = file[0] == '\0' || (line == call.line && std::string_view(call.file).starts_with(file));
            return concat(" with ", name, " ", value, said ? "" : concat(" (stated at ", file, ":", line, ")"));
        }
    };

    std::size_t count_ = 0;
    std::uint64_t last_ = 1;
    std::array<Record, size> records_{};
};
using StatementPage = BasicStatementPage<void>;

/// Returns what two ranks state where they first differ. `gather(page)` gives every rank's page, by rank; all ranks
/// call it equally often.
template <class Gather>
std::pair<std::string, std::string> stated_apart(const Statements& own, std::size_t a, std::size_t b,
                                                 SourceLocation where, const Gather& gather) {
    for (std::size_t page = 0;; ++page) {
        const auto all = gather(StatementPage(own, page));
        if (const auto texts = StatementPage::apart(all[a], all[b], where)) { return *texts; }
    }
}
/// Returns the same where both are known.
template <class Page = StatementPage>
std::pair<std::string, std::string> stated_apart(const Statements& a, const Statements& b, SourceLocation where) {
    for (std::size_t page = 0;; ++page) {
        if (const auto texts = Page::apart({a, page}, {b, page}, where)) { return *texts; }
    }
}

}  // namespace shardkit::detail
