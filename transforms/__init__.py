"""The Apache Beam wiring: PTransforms, DoFns and CombineFns around the functions of dpcore.

As little logic as possible stands here. This file imports nothing, so that a worker loads Beam
only through the module it needs.
"""
