// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace shardkit::detail {

/// The base of classes whose objects are neither copied nor moved.
class NotCopied {
  public:
    NotCopied() = default;
    NotCopied(const NotCopied&) = delete;
    NotCopied& operator=(const NotCopied&) = delete;
};

}  // namespace shardkit::detail
