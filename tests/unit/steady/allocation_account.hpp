// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

/// What the allocation functions of allocation_ledger.hpp count: each thread keeps its own account.
namespace steady {

struct Account {
    std::size_t allocations = 0;
    std::size_t current = 0;  ///< bytes
    std::size_t peak = 0;
    /// Bytes that live in blocks of at least `large`, and how many blocks.
    static constexpr std::size_t large = 4096;
    std::size_t large_bytes = 0;
    std::size_t large_blocks = 0;
    /// Of them those aligned to 128 bytes: what engines' buffers are, and no container of the host's.
    std::size_t large_buffer_bytes = 0;
    /// Bytes in blocks of any size that are aligned so, except in the scope of an OffAccount.
    std::size_t buffer_bytes = 0;
    std::size_t buffer_peak = 0;
    std::size_t off_account = 0;
};
inline thread_local Account account;

/// While it lives, this thread's blocks are on no account of buffers.
struct OffAccount {
    OffAccount() noexcept { ++account.off_account; }
    ~OffAccount() { --account.off_account; }
    OffAccount(const OffAccount&) = delete;
    OffAccount& operator=(const OffAccount&) = delete;
};

}  // namespace steady
