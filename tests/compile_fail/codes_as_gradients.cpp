// SPDX-License-Identifier: Apache-2.0
// expected-error: Precision: 8-bit codes are what is gathered, made from masters; name the type of gradients
#include "model.hpp"

#ifdef REJECT
using Codes = sk::Precision<sk::e4m3>;
#else
using Codes = sk::Precision<sk::e4m3, float>;
#endif
using Coded = sk::Sharded<Linear, sk::FullShard, Codes>;

void make(sk::Rank& rank) { const Coded layer(rank, "layer"); }
